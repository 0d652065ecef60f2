//! The options of a server: what it says of its device, and its limits.

use std::time::Duration;

use zfold_pool::builders;

use super::tls::Tls;

/// What a server says of its device, its limits, and its encryption.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NbdOptions {
    /// The name of the export, at most 4096 bytes; may be empty. Clients may ask for any.
    pub name: String,
    /// A sentence for people, at most 4096 bytes; may be empty.
    pub description: String,
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
            name: String::new(),
            description: String::new(),
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
        with_name => name: impl Into<String>,
        with_description => description: impl Into<String>,
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
