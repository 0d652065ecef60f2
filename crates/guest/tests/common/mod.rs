//! A server of one image in a folder, and what it says.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::io::Write as _;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use zfold_guest::{Images, Server, ServerOptions, images_options};
use zfold_store::{CodecKind, StoreOptions};
use zfold_testing::wait_for;

use crate::vmm::{PAGE, Vmm, page};

/// A server that has the image `web`, of one seed unless said otherwise.
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
        let mut file = tempfile::tempfile().expect("a file");
        for number in 0..pages {
            file.write_all(&page(SEED, number)).expect("written");
        }
        let images = Arc::new(Images::new(store).expect("a store"));
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

    /// Returns whether the server has said a line with this part.
    pub(crate) fn heard(&self, part: &str) -> bool {
        self.said.lock().expect("no panic").iter().any(|line| line.contains(part))
    }

    /// Waits until the server has said a line with this part.
    pub(crate) fn hears(&self, part: &str) {
        wait_for(|| {
            let said = self.said.lock().expect("no panic");
            let found = said.iter().any(|line| line.contains(part));
            found.then_some(()).ok_or_else(|| format!("{said:?} has no {part:?}"))
        });
    }

    /// Waits until so many guests are there.
    pub(crate) fn has_guests(&self, number: usize) {
        wait_for(|| {
            let stats = self.server.stats();
            (stats.guests.len() == number).then_some(()).ok_or((number, stats.guests))
        });
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.pages * PAGE as u64
    }
}
