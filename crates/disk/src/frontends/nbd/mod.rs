//! A server of the NBD protocol: devices for clients on this machine and others.
//!
//! It speaks fixed newstyle with structured replies, block status (`base:allocation`) and TLS by
//! certificates, over Unix and TCP sockets, as the protocol's document describes it
//! (`doc/proto.md` of the NBD project). Where that document leaves a choice:
//!
//! - Any offset and length is taken; whole pages are the fastest, and told as preferred size.
//! - The empty export name is the first export's; where there is one export, every name is its.
//! - Pages of zeros count as holes in block status: a page of zeros takes no more room than none.
//! - Writing zeros is always fast, with NO_HOLE as well, so FAST_ZERO never fails.
//! - A write to what block status calls data can still fail for lack of space: new bytes may be
//!   harder to compress than old ones.
//! - With structured replies every error carries a sentence.
//!
//! ```text
//!   Listener -> Server: one thread a listener accepts -> Handshake -> Connection
//!                                                          \             /
//!                                                 Channel (Socket, Session), Input
//! ```
//!
//! - N1: a client can harm its own connection only. What it sends has limits, and so has what it
//!   makes the server keep: [`NbdOptions`] says how many connections there are, and what the
//!   requests of all of them hold beyond 256 KiB of each. A client that keeps all of that makes
//!   large requests of others go in pieces, and nobody wait. Each connection has buffers besides:
//!   256 KiB, and some 200 KiB for each of its threads.
//! - N2: a client that does not read its replies is not read from any more, and keeps no other one
//!   waiting.
//! - N3: how the threads of a connection share its work, and which locks there are, is told in
//!   `connection.rs`. The server's own lock guards the list of connections and is held for moments
//!   only.

mod budget;
mod buffer;
mod channel;
mod connection;
mod handshake;
mod listener;
mod output;
mod pieces;
mod protocol;
mod serve;
mod server;
mod socket;
mod stats;
mod tls;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::disk::Disk;

pub use listener::{Address, Listener, SocketFile};
pub use server::NbdServer;
pub use stats::NbdStats;
pub use tls::{Tls, TlsError, tls_config};

/// A device and the name under which clients find it.
#[derive(Clone, Debug)]
pub struct Export {
    /// Its name, at most 4096 bytes; may be empty.
    pub name: String,
    /// A sentence for people, at most 4096 bytes; may be empty.
    pub description: String,
    /// The device.
    pub disk: Arc<Disk>,
    /// Whether writes are refused although the device takes them.
    pub read_only: bool,
}

impl Export {
    fn refuses_writes(&self) -> bool {
        self.read_only || self.disk.read_only()
    }
}

/// Limits of a server, and its encryption.
#[derive(Clone, Debug)]
pub struct NbdOptions {
    /// Connections at a time, handshakes included; further ones are closed at once.
    pub max_connections: usize,
    /// Bytes of one read or write, told to clients; at least 64 KiB and at most 1 GiB count.
    pub max_request_bytes: u32,
    /// Bytes that requests of all connections together may hold, beyond the 256 KiB that each
    /// connection may. Requests that find no room are served in pieces of 64 KiB.
    pub max_held_bytes: u64,
    /// Threads that one connection may use; at least 1.
    pub threads_per_connection: usize,
    /// Time for each message of a client before the transmission begins.
    pub handshake_timeout: Duration,
    /// Encryption.
    pub tls: Tls,
}

impl Default for NbdOptions {
    fn default() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            max_connections: 256,
            max_request_bytes: 64 << 20,
            max_held_bytes: 32 << 20,
            threads_per_connection: cpus.min(8),
            handshake_timeout: Duration::from_secs(10),
            tls: Tls::Off,
        }
    }
}

impl NbdOptions {
    fn max_request(&self) -> u32 {
        self.max_request_bytes.clamp(64 << 10, 1 << 30)
    }
}

/// Locks, also after a panic: whatever these locks guard is sound between any two statements.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
