//! An object in a bucket, and requests for it that do not give up at once.

use std::io;
use std::time::{Duration, Instant};

use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt as _};

use crate::engine::EngineError;
use crate::engines::s3::bucket::{Bucket, failed};
use crate::place::{PlaceError, S3Place, place_error};

/// How long one request may take, and how long it is made again and again.
pub(super) const ATTEMPT: Duration = Duration::from_secs(30);
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// The wait between two attempts.
pub(super) const PAUSE: Duration = Duration::from_millis(500);

/// An object, and the list of the parts of a write that was interrupted.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) bucket: Bucket,
    pub(super) key: Path,
    /// Lies beside the object as long as it is being sent.
    pub(super) list: Path,
}

impl Target {
    /// Returns the object of `place`.
    pub(super) fn open(place: &S3Place) -> Result<Self, PlaceError> {
        if place.path.is_empty() {
            return Err(place_error!("{place} is a bucket: give s3://{}/KEY", place.bucket));
        }
        let key = Path::from(&*place.path);
        let list = Path::from(format!("{}.parts", place.path));
        Ok(Self { bucket: Bucket::open(place)?, key, list })
    }

    /// Makes a request until it is answered, for a minute at most, and waits for that.
    pub(super) fn insist<T, R>(&self, request: impl FnMut() -> R) -> Result<T, EngineError>
    where
        R: Future<Output = object_store::Result<T>>,
    {
        self.bucket.threads().block_on(insist(request))
    }

    /// Returns what the server says of the object.
    pub(super) fn head(&self) -> Result<Option<ObjectMeta>, EngineError> {
        match self.insist(|| self.bucket.store().head(&self.key)) {
            Ok(found) => Ok(Some(found)),
            Err(EngineError::Missing) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Makes a request until it is answered, for a minute at most.
pub(super) async fn insist<T, R>(mut request: impl FnMut() -> R) -> Result<T, EngineError>
where
    R: Future<Output = object_store::Result<T>>,
{
    let deadline = Instant::now() + PATIENCE;
    loop {
        let until = deadline.min(Instant::now() + ATTEMPT);
        let error = match tokio::time::timeout_at(until.into(), request()).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => failed(&error),
            Err(_) => EngineError::Late,
        };
        if !may_pass(&error) || Instant::now() + PAUSE >= deadline {
            return Err(error);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Returns whether what failed may succeed later without anybody's help.
pub(super) fn may_pass(error: &EngineError) -> bool {
    matches!(error, EngineError::Late | EngineError::Unreachable(_))
}

/// Returns an engine's error as one of a stream.
pub(super) fn stream_error(error: EngineError) -> io::Error {
    io::Error::new(error.kind(), error)
}
