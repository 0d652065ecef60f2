//! A server of one image in a folder, and what it says.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::io::{IoSlice, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use zfold_guest::{Bind, Front, FrontOptions, Images, Link, Server, ServerOptions, images_options};
use zfold_store::{CodecKind, StoreOptions};
use zfold_testing::{skip, wait_for};

use crate::vmm::{PAGE, Vmm, page};

/// A server that has the image `web`, of one seed unless said otherwise.
pub(crate) struct World {
    pub(crate) images: Arc<Images>,
    pub(crate) server: Arc<Server>,
    pub(crate) link: Link,
    pub(crate) socket: PathBuf,
    pub(crate) pages: u64,
    said: Arc<Mutex<Vec<String>>>,
    _folder: tempfile::TempDir,
}

/// The seed of the image.
pub(crate) const SEED: u64 = 5;

impl World {
    pub(crate) fn new(pages: u64) -> Self {
        Self::with(pages, Default::default())
    }

    pub(crate) fn with(pages: u64, options: (ServerOptions, FrontOptions)) -> Self {
        Self::of(pages, &images_options(CodecKind::Lz4.into(), None), options)
    }

    pub(crate) fn of(
        pages: u64,
        store: &StoreOptions,
        (options, front): (ServerOptions, FrontOptions),
    ) -> Self {
        let mut file = tempfile::tempfile().expect("a file");
        for number in 0..pages {
            file.write_all(&page(SEED, number)).expect("written");
        }
        let images = Arc::new(Images::new(store).expect("a store"));
        images.import("web", &file, None).expect("imported");
        let said = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&said);
        let tell = move |line: &str| told.lock().expect("no panic").push(line.to_owned());
        let server = Server::new(Arc::clone(&images), options, tell.clone()).expect("a server");
        let server = Arc::new(server);
        let folder = tempfile::tempdir().expect("a folder");
        let link = accept(&server, folder.path(), front, tell);
        let socket = link.listen("web").expect("listening");
        Self { images, server, link, socket, pages, said, _folder: folder }
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

/// Returns a world with so many places, and so much time for a handshake.
pub(crate) fn world(pages: u64, places: usize, handshake: Duration) -> World {
    let mut options = FrontOptions::default();
    options.places = places;
    options.handshake = handshake;
    World::with(pages, (ServerOptions::default(), options))
}

/// Makes sockets in a folder, which goes with the test.
pub(crate) fn sockets(folder: PathBuf) -> Bind {
    Box::new(move |image: &str| {
        let path = folder.join(image);
        let listener = UnixListener::bind(&path).map_err(|error| error.to_string())?;
        Ok((path, listener, Box::new(())))
    })
}

/// Makes a front for a server in the same process, which no other one replaces.
pub(crate) fn accept(
    server: &Arc<Server>,
    folder: &Path,
    options: FrontOptions,
    tell: impl Fn(&str) + Send + Sync + 'static,
) -> Link {
    let (front, channel) = Front::new(sockets(folder.to_owned()), options, tell).expect("a front");
    std::thread::spawn(move || front.run(&[], |_| {}));
    Link::start(channel, Arc::clone(server), |_| {}).expect("a front").0
}

/// Checks that a guest that does all right is served; false if there can be none.
pub(crate) fn serves(world: &World) -> bool {
    let Some(mut guest) = world.vmm("whole") else {
        skip("no userfaultfd");
        return false;
    };
    assert_eq!(guest.ask(&format!("verify {SEED} 0 {} 7", world.pages)), "right");
    true
}

/// Sends bytes with descriptors.
pub(crate) fn send(peer: &UnixStream, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(200))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    assert!(beside.push(SendAncillaryMessage::ScmRights(fds)));
    // The server may have hung up.
    let _ = sendmsg(peer, &[IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL);
}
