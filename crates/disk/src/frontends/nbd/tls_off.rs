//! In place of transport encryption where the feature `nbd-tls` is off: no session ever begins,
//! which the compiler knows.

use std::io::{self, IoSlice};

use super::buffer::Buffer;
use super::socket::Socket;

/// Whether connections are encrypted: never, without the feature `nbd-tls`.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Tls {
    /// Never.
    #[default]
    Off,
}

impl Tls {
    pub(super) fn config(&self) -> Option<&Config> {
        None
    }

    pub(super) fn is_required(&self) -> bool {
        false
    }
}

/// The configuration of sessions, if there were any: there is none.
#[derive(Debug)]
pub(super) enum Config {}

/// The encryption of a connection: there is none.
#[derive(Debug)]
pub(super) enum Session {}

impl Session {
    pub(super) fn accept(config: &Config, _: &Socket, _: &mut Buffer) -> io::Result<Self> {
        match *config {}
    }

    pub(super) fn receive(&self, _: &Socket, _: &mut Buffer, _: &mut [u8]) -> io::Result<usize> {
        match *self {}
    }

    pub(super) fn send_all(&self, _: &Socket, _: &[IoSlice<'_>]) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn close(&self, _: &Socket) {
        match *self {}
    }
}
