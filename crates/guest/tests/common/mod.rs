//! A server of one image in a folder, and what it says.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::io::Write as _;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use zfold_guest::{Images, Server, ServerOptions, images_options};
use zfold_store::{CodecKind, StoreOptions};

use crate::vmm::{PAGE, Vmm, page};

/// How long anything may take before a test gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A server that has the image `web` of one seed.
pub(crate) struct World {
    pub(crate) images: Arc<Images>,
    pub(crate) server: Server,
    pub(crate) socket: PathBuf,
    pub(crate) pages: u64,
    said: Arc<Mutex<Vec<String>>>,
    _folder: tempfile::TempDir,
}

/// The seed of the image.
pub(crate) const SEED: u64 = 5;

impl World {
    pub(crate) fn new(pages: u64) -> Self {
        let options = images_options(CodecKind::Lz4.into(), None);
        Self::of(pages, &options, ServerOptions::default())
    }

    pub(crate) fn of(pages: u64, store: &StoreOptions, options: ServerOptions) -> Self {
        let images = Arc::new(Images::new(store).expect("a store"));
        let mut file = tempfile::tempfile().expect("a file");
        for number in 0..pages {
            file.write_all(&page(SEED, number)).expect("written");
        }
        images.import("web", &file, None).expect("imported");
        let said = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&said);
        let tell = move |line: &str| told.lock().expect("no panic").push(line.to_owned());
        let server = Server::new(Arc::clone(&images), options, tell).expect("a server");
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("web.sock");
        server.listen("web", UnixListener::bind(&socket).expect("bound")).expect("listening");
        Self { images, server, socket, pages, said, _folder: folder }
    }

    /// Starts a stand-in as large as the image.
    pub(crate) fn vmm(&self, message: &str) -> Option<Vmm> {
        Vmm::start(&self.socket, self.pages, message)
    }

    /// Waits until the server has said a line with this part.
    pub(crate) fn hears(&self, part: &str) {
        let found = || self.said.lock().expect("no panic").iter().any(|line| line.contains(part));
        wait_until(found, || format!("{:?} has no {part:?}", self.said.lock()));
    }

    /// Waits until so many guests are there.
    pub(crate) fn has_guests(&self, number: usize) {
        let found = || self.server.stats().guests.len() == number;
        wait_until(found, || format!("not {number}: {:?}", self.server.stats()));
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.pages * PAGE as u64
    }
}

/// Waits until something is so.
pub(crate) fn wait_until(so: impl Fn() -> bool, told: impl Fn() -> String) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < PATIENCE, "{}", told());
        std::thread::sleep(Duration::from_millis(2));
    }
}
