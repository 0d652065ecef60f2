//! Any error of the crate, for callers that treat all of them alike.

use crate::backing::BackingError;
use crate::cache::CacheError;
use crate::codec::CodecError;
use crate::error::{KeyError, LoadError, OpenError, ProcessError, StoreError, UpdateError};
use crate::store::snapshot::SnapshotError;

/// Any error of the crate. Every other error of it converts to this one, so that `?` works in
/// functions that return it. Its text and its cause are those of that error.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
#[non_exhaustive]
pub enum Error {
    /// A store or cache was not made or not tuned.
    Open(#[from] OpenError),
    /// There is no such key.
    Key(#[from] KeyError),
    /// A page was not stored.
    Store(#[from] StoreError),
    /// A page was not loaded.
    Load(#[from] LoadError),
    /// A page was not changed.
    Update(#[from] UpdateError),
    /// Pages were not written back or recompressed.
    Process(#[from] ProcessError),
    /// A snapshot was not written or not read.
    Snapshot(#[from] SnapshotError),
    /// A value was not inserted or not read.
    Cache(#[from] CacheError),
    /// A file or device was not opened.
    Backing(#[from] BackingError),
    /// A codec or dictionary was not made.
    Codec(#[from] CodecError),
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
