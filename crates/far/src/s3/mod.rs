//! Objects in a bucket of S3 that are written and read as streams, such as snapshots.
//!
//! `object_store` sends an object in parts, which appear as a whole when it is complete.

mod bounded;
mod bucket;
mod download;
#[cfg(any(test, feature = "testing"))]
#[path = "../../tests/heard/s3.rs"]
pub(crate) mod heard;

use std::io::{self, Read, Write};
use std::time::Duration;

use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt as _, WriteMultipart};

use self::bucket::Bucket;
use self::download::Download;
use crate::object::{Object, ObjectWrite};
use crate::place::{PlaceError, S3Place, place_error};

/// Length of a part, and how many there may be: an object has 156 GiB at most.
const PART: usize = 16 << 20;
const PARTS_MAX: u64 = 10_000;

/// The most parts on their way.
const WINDOW: usize = 2;

/// How long a writer that gives up tries to remove what it has sent.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// An object in a bucket.
#[derive(Debug)]
pub(crate) struct S3Object {
    bucket: Bucket,
    key: Path,
}

impl S3Object {
    /// Returns the object of `place`. Sends no request.
    pub(crate) fn open(place: &S3Place) -> Result<Self, PlaceError> {
        if place.path.is_empty() {
            return Err(place_error!("{place} is a bucket: give s3://{}/KEY", place.bucket));
        }
        Ok(Self { bucket: Bucket::open(place)?, key: Path::from(&*place.path) })
    }

    /// Returns what the server says of it.
    fn head(&self) -> io::Result<Option<ObjectMeta>> {
        match self.bucket.call(self.bucket.store().head(&self.key)) {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Object for S3Object {
    fn size(&self) -> io::Result<Option<u64>> {
        Ok(self.head()?.map(|found| found.size))
    }

    fn try_write(&self) -> io::Result<()> {
        let mut upload = self.bucket.call(self.bucket.store().put_multipart(&self.key))?;
        self.bucket.call(upload.abort())
    }

    fn read(&self) -> io::Result<Box<dyn Read + '_>> {
        let found = self.head()?;
        let found = found.ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "it is not there, or was never completed")
        })?;
        Ok(Box::new(Download::new(&self.bucket, found)))
    }

    fn write(&self) -> io::Result<Box<dyn ObjectWrite + '_>> {
        let upload = self.bucket.call(self.bucket.store().put_multipart(&self.key))?;
        let parts = WriteMultipart::new_with_chunk_size(upload, PART);
        Ok(Box::new(Upload { object: self, parts: Some(parts), len: 0 }))
    }
}

/// An object that is being written.
struct Upload<'a> {
    object: &'a S3Object,
    /// None when it is completed.
    parts: Option<WriteMultipart>,
    len: u64,
}

impl Write for Upload<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.len += bytes.len() as u64;
        if self.len > PARTS_MAX * PART as u64 {
            return Err(io::Error::other("it is too long for S3: save to a file"));
        }
        let parts = self.parts.as_mut().expect("not completed");
        self.object.bucket.call(async {
            parts.wait_for_capacity(WINDOW).await?;
            parts.write(bytes);
            Ok(bytes.len())
        })
    }

    /// Does nothing: parts are sent when they are full.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl ObjectWrite for Upload<'_> {
    fn complete(mut self: Box<Self>) -> io::Result<()> {
        let parts = self.parts.take().expect("completed once");
        self.object.bucket.call(parts.finish()).map(drop)
    }
}

impl Drop for Upload<'_> {
    fn drop(&mut self) {
        if let Some(parts) = self.parts.take() {
            let abort = async { tokio::time::timeout(LAST_WORDS, parts.abort()).await };
            // Parts that stay are for the bucket's rule about them.
            let _ = self.object.bucket.threads().block_on(abort);
        }
    }
}
