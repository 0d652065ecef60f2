//! The exports and the limits of a server.

use std::sync::Arc;
use std::time::Duration;

use zfold_pool::builders;

use super::tls::Tls;
use crate::disk::Disk;

/// A device and the name under which clients find it.
#[derive(Clone, Debug)]
#[non_exhaustive]
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
    /// Returns a device under a name, without a description, that takes writes if the device does.
    #[must_use]
    pub fn new(name: impl Into<String>, disk: Arc<Disk>) -> Self {
        Self { name: name.into(), description: String::new(), disk, read_only: false }
    }

    builders! {
        with_description => description: impl Into<String>,
        with_read_only => read_only: bool,
    }

    pub(super) fn refuses_writes(&self) -> bool {
        self.read_only || self.disk.read_only()
    }
}

/// Limits of a server, and its encryption.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NbdOptions {
    /// Clients at a time. Besides them an eighth as many, at least 8, may be in the handshake.
    /// Where all places are taken, the oldest handshake of the address that has most gives way to a
    /// newcomer, and an idle client over TCP to one whose handshake is done.
    pub max_connections: usize,
    /// Bytes of one read or write, reported to clients; at least 64 KiB and at most 1 GiB count.
    pub max_request_bytes: u32,
    /// Bytes that requests of all connections together may hold, beyond the 256 KiB that each
    /// connection may. Requests that find no room are served in pieces of 64 KiB.
    pub max_held_bytes: u64,
    /// Time for the whole handshake, encryption included.
    pub handshake_timeout: Duration,
    /// Time without a request after which a client over TCP gives way to those that want its place.
    pub idle_after: Duration,
    /// Encryption.
    pub tls: Tls,
}

impl Default for NbdOptions {
    fn default() -> Self {
        Self {
            max_connections: 256,
            max_request_bytes: 64 << 20,
            max_held_bytes: 32 << 20,
            handshake_timeout: Duration::from_secs(30),
            idle_after: Duration::from_secs(10),
            tls: Tls::Off,
        }
    }
}

impl NbdOptions {
    builders! {
        with_max_connections => max_connections: usize,
        with_max_request_bytes => max_request_bytes: u32,
        with_max_held_bytes => max_held_bytes: u64,
        with_handshake_timeout => handshake_timeout: Duration,
        with_idle_after => idle_after: Duration,
        with_tls => tls: Tls,
    }

    pub(super) fn max_request(&self) -> u32 {
        self.max_request_bytes.clamp(64 << 10, 1 << 30)
    }
}
