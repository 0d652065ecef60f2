//! A server of the NBD protocol: a device for clients on this machine and others.
//!
//! It speaks fixed newstyle with structured replies, block status (`base:allocation`) and TLS by
//! certificates, over Unix and TCP sockets, as the protocol's document describes it
//! (`doc/proto.md` of the NBD project). Where that document leaves a choice:
//!
//! - Any offset and length is taken; whole pages are the fastest, and reported as the preferred
//!   size.
//! - A server has one export, and every name is its.
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
//! - N1: a client can harm its own connection only. Its messages have limits, and so has the memory
//!   that it makes the server hold: [`NbdOptions`] says how many connections there are (`places.rs`
//!   says which ones give way), how long a handshake may take, and what the requests of all of them
//!   hold beyond 256 KiB of each. A client that holds all of that makes large requests of others go
//!   in pieces, but makes none wait. Each connection has buffers besides: 256 KiB, and about 200
//!   KiB for each of its threads.
//! - N2: a client that does not read its replies is no longer read from, and keeps no other one
//!   waiting.
//! - N3: `connection.rs` says how the threads of a connection share its work, and which locks there
//!   are. The server's own lock guards the list of connections and is held for moments only.
//! - N4: nothing that a broken connection has sent is carried out after a request that was sent
//!   later over another one (fence/F1).

mod activity;
mod budget;
mod buffer;
mod channel;
mod connection;
mod fence;
mod handshake;
mod listener;
mod options;
mod output;
mod pieces;
mod places;
mod protocol;
mod serve;
mod server;
mod socket;
mod stats;
#[cfg(feature = "nbd-tls")]
mod tls;
#[cfg(not(feature = "nbd-tls"))]
#[path = "tls_off.rs"]
mod tls;

pub use listener::{
    Address, AddressError, ListenError, Listener, SocketFile, connect_within, is_listening,
};
pub use options::NbdOptions;
pub use server::NbdServer;
pub use stats::{NbdStats, TABLE};
pub use tls::{Tls, TlsError, tls_config};
