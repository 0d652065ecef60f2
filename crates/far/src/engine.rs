//! The contract of an engine: a service on other machines that keeps objects by number.
//!
//! - N1: a number is put once. Bytes that have been put never change; a number that was deleted, or
//!   whose put failed, is never used again.
//! - N2: `put` returns without an error only after the requested number of copies is acknowledged.
//!   After an error the object may be there, whole, or not; never in part.
//! - N3: `get` returns bytes that were put under that number, all of the range, or an error. The
//!   engine is not trusted: the caller verifies the answer.
//! - N4: every call returns by its deadline, give or take the time that one look takes.

use std::fmt;
use std::io;
use std::time::Instant;

/// Keeps objects by number.
///
/// All methods take `&self`, and any number of threads may call them at the same time.
pub trait Engine: Send + Sync + fmt::Debug {
    /// Returns what messages call the engine, as `redis at 10.0.0.1:6379`. Without secrets.
    fn name(&self) -> &str;

    /// Returns how long an object should be, in bytes: the size that the engine moves well.
    fn object_bytes(&self) -> usize;

    /// Returns how many bytes of pages there is room for, if the engine knows.
    fn room(&self) -> Option<u64> {
        None
    }

    /// Stores `bytes` under `number`, which was never used before (N1, N2).
    ///
    /// # Errors
    /// See [`EngineError`].
    fn put(&self, number: u64, bytes: &[u8], deadline: Instant) -> Result<(), EngineError>;

    /// Fills `out` with the bytes of an object from `offset` on (N3).
    ///
    /// # Errors
    /// See [`EngineError`]; the contents of `out` are then unspecified.
    fn get(
        &self,
        number: u64,
        offset: usize,
        out: &mut [u8],
        deadline: Instant,
    ) -> Result<(), EngineError>;

    /// Removes objects. One that is not there is no error.
    ///
    /// # Errors
    /// See [`EngineError`]; some may be removed.
    fn delete(&self, numbers: &[u64], deadline: Instant) -> Result<(), EngineError>;

    /// Moves on the expiry of objects that are still needed. An engine that removes what an owner
    /// left behind does so an hour after the last call for it. By default nothing expires.
    ///
    /// # Errors
    /// See [`EngineError`]; some may be renewed.
    fn renew(&self, numbers: &[u64], deadline: Instant) -> Result<(), EngineError> {
        let _ = (numbers, deadline);
        Ok(())
    }

    /// Says that the owner of these objects needs none of them any more, nor the engine: what the
    /// engine keeps there for itself is removed. By default it keeps nothing.
    ///
    /// # Errors
    /// See [`EngineError`]; some may be left.
    fn close(&self, deadline: Instant) -> Result<(), EngineError> {
        let _ = deadline;
        Ok(())
    }
}

/// Why an engine did not carry out a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// There is no such object, or it is shorter than the requested range.
    #[error("the object is not there")]
    Missing,
    /// The deadline has passed.
    #[error("no answer in time")]
    Late,
    /// The engine cannot be reached now; what the system or the engine's library says.
    #[error("cannot be reached: {0}")]
    Unreachable(String),
    /// The engine answered that it will not: it is full, forbids it, or has fewer copies than
    /// requested. Its message.
    #[error("refused: {0}")]
    Refused(String),
}

impl EngineError {
    /// Returns the kind that such an error has in the system's words.
    pub(crate) fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Missing => io::ErrorKind::NotFound,
            Self::Late => io::ErrorKind::TimedOut,
            Self::Unreachable(_) => io::ErrorKind::HostUnreachable,
            Self::Refused(_) => io::ErrorKind::PermissionDenied,
        }
    }
}
