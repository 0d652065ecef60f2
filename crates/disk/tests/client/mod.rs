//! Servers with connections made by hand, and all that a client of them says.

#![allow(dead_code, unreachable_pub, unused_imports, reason = "each test binary uses a part of it")]

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;

use zfold_disk::nbd::{NbdOptions, NbdServer, NbdStats};
use zfold_disk::{Disk, DiskOptions, SectorSize};
use zfold_pool::PoolOptions;
use zfold_store::{CodecKind, Store, StoreOptions};

pub use zfold_testing::nbd::client::{Client, Reply, info_request, queries, request, string};
pub use zfold_testing::nbd::protocol::reply::{ACK, INVALID, POLICY, TLS_REQUIRED, UNSUPPORTED};
pub use zfold_testing::nbd::protocol::{command::*, command_flag::*, error::*, option::*};
pub use zfold_testing::skip::{has_loopback, skip};
pub use zfold_testing::wait::{PATIENCE, wait_until};

pub const PAGE: u64 = 4096;

pub fn disk(pages: u64) -> Arc<Disk> {
    limited_disk(pages, None)
}

pub fn limited_disk(pages: u64, limit_bytes: Option<u64>) -> Arc<Disk> {
    let pool = zfold_pool::create("test", &PoolOptions::default()).unwrap();
    let mut options = StoreOptions::new(pages, CodecKind::Lz4.into());
    options.limit_bytes = limit_bytes;
    let store = Store::new(pool, &options).unwrap();
    let options = DiskOptions::new(pages * PAGE).with_sector(SectorSize::B512);
    Arc::new(Disk::new(Arc::new(store), &options).unwrap())
}

/// Bytes that compress, and differ from place to place.
pub fn bytes(len: usize, salt: u64) -> Vec<u8> {
    (0..len as u64).map(|n| ((n / 5 + salt * 31) % 251 + 1) as u8).collect()
}

/// A server with one way in: connections made by hand.
pub struct Served {
    pub server: Arc<NbdServer>,
    threads: Vec<JoinHandle<()>>,
}

impl Served {
    pub fn new(disk: &Arc<Disk>, options: NbdOptions) -> Self {
        Self { server: NbdServer::new(Arc::clone(disk), options), threads: Vec::new() }
    }

    pub fn one(disk: &Arc<Disk>) -> Self {
        let named = NbdOptions::default().with_name("one");
        Self::new(disk, named.with_description("the disk \"one\""))
    }

    /// Returns a connection on which nothing was said yet.
    pub fn connect(&mut self) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(PATIENCE)).unwrap();
        ours.set_write_timeout(Some(PATIENCE)).unwrap();
        let server = Arc::clone(&self.server);
        self.threads.push(std::thread::spawn(move || server.serve_connection(theirs)));
        ours
    }

    /// Returns a client in the handshake.
    pub fn client(&mut self) -> Client<UnixStream> {
        Client::greet(self.connect())
    }

    /// Returns a client in transmission with structured replies and block status.
    pub fn ready(&mut self) -> Client<UnixStream> {
        let mut client = self.client();
        client.structured();
        client.go("");
        client
    }

    /// Waits for all connections to end; their clients must have left. Returns what was counted: a
    /// server counts a request after it has answered it.
    pub fn finish(mut self) -> NbdStats {
        self.end();
        self.server.stats()
    }

    fn end(&mut self) {
        for thread in self.threads.drain(..) {
            thread.join().expect("no thread of the server panicked");
        }
        assert_eq!(self.server.stats().connections, 0);
    }
}

/// Clients that were made after the server have left when it goes.
impl Drop for Served {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.end();
        }
    }
}
