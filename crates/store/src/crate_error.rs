//! Any error of the crate, for callers that treat all of them alike.

use std::error;
use std::fmt;

use crate::backing::BackingError;
use crate::cache::CacheError;
use crate::codec::CodecError;
use crate::error::{KeyError, LoadError, OpenError, ProcessError, StoreError, UpdateError};
use crate::store::snapshot::SnapshotError;

/// Declares the variants, one for the error of each operation, and the conversions to them.
macro_rules! errors {
    ($($(#[$doc:meta])* $name:ident($error:ty),)*) => {
        /// Any error of the crate. Every other error of it converts to this one, so that `?` works
        /// in functions that return it.
        #[derive(Debug)]
        #[non_exhaustive]
        pub enum Error { $($(#[$doc])* $name($error),)* }

        $(impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::$name(error)
            }
        })*

        impl fmt::Display for Error {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $(Self::$name(error) => error.fmt(f),)* }
            }
        }

        impl error::Error for Error {
            /// What the error itself was caused by: its text is that of this one.
            fn source(&self) -> Option<&(dyn error::Error + 'static)> {
                match self { $(Self::$name(error) => error.source(),)* }
            }
        }
    };
}

errors! {
    /// A store or cache was not made or not tuned.
    Open(OpenError),
    /// There is no such key.
    Key(KeyError),
    /// A page was not stored.
    Store(StoreError),
    /// A page was not loaded.
    Load(LoadError),
    /// A page was not changed.
    Update(UpdateError),
    /// Pages were not written back or recompressed.
    Process(ProcessError),
    /// A snapshot was not written or not read.
    Snapshot(SnapshotError),
    /// A value was not inserted or not read.
    Cache(CacheError),
    /// A file or device was not opened.
    Backing(BackingError),
    /// A codec or dictionary was not made.
    Codec(CodecError),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CodecKind, Store, StoreOptions};

    fn all_at_once(limit_bytes: u64) -> Result<(), Error> {
        let options = StoreOptions::new(10, CodecKind::Lz4.into()).with_limit_bytes(limit_bytes);
        let store = Store::open(&options)?;
        store.store(11, &[1; 4096])?;
        store.load(11, &mut [0; 4096])?;
        Ok(())
    }

    #[test]
    fn every_error_becomes_the_crates_and_keeps_its_words() {
        let error = all_at_once(1 << 20).unwrap_err();
        let key = KeyError { key: 11, slots: 10 };
        assert!(matches!(error, Error::Store(StoreError::Key(found)) if found == key));
        assert_eq!(error.to_string(), key.to_string());
    }
}
