//! In place of transport encryption where the feature `nbd-tls` is off: [`tls_config`] says so, and
//! no session ever begins, which the compiler knows.

use std::io::{self, IoSlice};
use std::path::Path;

use thiserror::Error;

use super::buffer::Buffer;
use super::socket::Socket;

/// Whether connections are encrypted: never, without the feature `nbd-tls`.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Tls {
    /// Never.
    #[default]
    Off,
    /// If the client asks for it: of no configuration, as none can be made.
    Allowed(Config),
    /// Always: of no configuration, as none can be made.
    Required(Config),
}

impl Tls {
    pub(super) fn config(&self) -> Option<&Config> {
        match *self {
            Self::Off => None,
            Self::Allowed(ref config) | Self::Required(ref config) => match *config {},
        }
    }

    pub(super) fn is_required(&self) -> bool {
        self.config().is_some()
    }
}

/// The configuration of sessions, if there were any: there is none.
#[derive(Clone, Debug)]
pub enum Config {}

/// Why a TLS configuration was not made.
#[derive(Debug, Error)]
#[error("this zfold was built without TLS; build with --features tls")]
pub struct TlsError(());

/// Returns why no configuration can be made.
///
/// # Errors
/// Always [`TlsError`].
pub fn tls_config(_: &Path, _: &Path, _: Option<&Path>) -> Result<Config, TlsError> {
    Err(TlsError(()))
}

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
