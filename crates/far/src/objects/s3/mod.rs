//! An object in a bucket of S3.

mod download;
mod parts;
mod target;
mod upload;

use std::io::{self, Read};

use object_store::ObjectStoreExt as _;
use object_store::multipart::MultipartStore as _;

use self::download::Download;
use self::target::{Target, stream_error};
use self::upload::Upload;
use crate::object::{Object, ObjectWrite};
use crate::place::{PlaceError, S3Place};

/// The message about an object of which only parts exist.
const INTERRUPTED: &str =
    "it is incomplete: saving it was interrupted; save it again, to continue from there";

/// See `objects::take_list`.
#[cfg(any(test, feature = "testing"))]
pub(super) fn take_list(text: &str) {
    if let Some(list) = parts::Parts::parse(text) {
        assert_eq!(parts::Parts::parse(&list.text()), Some(list));
    }
}

/// An object in a bucket.
#[derive(Debug)]
pub(super) struct S3Object(Target);

impl S3Object {
    /// Returns the object of `place`.
    pub(super) fn open(place: &S3Place) -> Result<Self, PlaceError> {
        Target::open(place).map(Self)
    }
}

impl Object for S3Object {
    fn name(&self) -> &str {
        self.0.bucket.name()
    }

    fn size(&self) -> io::Result<Option<u64>> {
        let found = self.0.head().map_err(stream_error)?;
        Ok(found.map(|found| found.size))
    }

    fn try_write(&self) -> io::Result<()> {
        let (target, key) = (&self.0, &self.0.key);
        let store = target.bucket.store();
        let tried = target
            .insist(|| store.create_multipart(key))
            .and_then(|upload| target.insist(|| store.abort_multipart(key, &upload)));
        tried.map_err(stream_error)
    }

    fn read(&self) -> io::Result<Box<dyn Read + '_>> {
        match self.0.head().map_err(stream_error)? {
            Some(found) => Ok(Box::new(Download::new(&self.0, found))),
            None => {
                let list = self.0.insist(|| self.0.bucket.store().head(&self.0.list));
                let what = if list.is_ok() { INTERRUPTED } else { "it is not there" };
                Err(io::Error::new(io::ErrorKind::NotFound, what))
            }
        }
    }

    fn write(&self) -> io::Result<Box<dyn ObjectWrite + '_>> {
        Ok(Box::new(Upload::begin(&self.0).map_err(stream_error)?))
    }
}
