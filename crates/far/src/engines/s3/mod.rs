//! S3 and what speaks like it: objects in a bucket.
//!
//! An object is one of S3 under `PATH/zfold-RUN/NUMBER`, read by ranges. S3 keeps as many copies as
//! it promises, so an answered put is all that engine/N2 requires.
//!
//! S3 has no expiry for one object, so each run has a *lease*: an object `PATH/zfold-RUN/lease`
//! that is rewritten each quarter of an hour. A run that renews its lease looks at the leases of
//! others, and removes the objects of runs that have not renewed theirs for an hour.
//!
//! - V1: a run's lease is written before its first object and removed after its last one.
//! - V2: ages are differences between two of the server's times: that of a lease and that of ours,
//!   just written. No local clock counts.
//! - V3: what has no lease is removed only when nothing in it is younger than an hour: it is what
//!   arrived late of a run that was removed, or a server shows late what was written to it.
//! - V4: a removal has the time of one renewal; what is left is for the next one.

mod bounded;
pub(crate) mod bucket;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod heard;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use object_store::list::{PaginatedListOptions, PaginatedListStore as _};
use object_store::path::{Path, PathPart};
use object_store::{ObjectMeta, ObjectStore as _, ObjectStoreExt as _, PutPayload};
use zfold_store::pool::Lock;

use self::bucket::Bucket;
use crate::engine::{Engine, EngineError};
use crate::engines::random;
use crate::place::{PlaceError, S3Place, place_error};

/// Longest object. Most are what one batch of writeback brings, 1 to 4 MiB; the cleaner's are as
/// long as this.
const OBJECT_BYTES: usize = 8 << 20;

/// How much a get fetches in hardly more time than a page: a request takes tens of milliseconds.
const READ_BYTES: usize = 256 << 10;

/// How long a run's objects stay when its lease is not renewed.
const LEASE: Duration = Duration::from_secs(3600);

/// How old a lease is when it is renewed.
const RENEW_AFTER: Duration = Duration::from_secs(LEASE.as_secs() / 4);

/// The beginning of the names of runs' folders.
const FOLDER: &str = "zfold-";

/// Objects in S3.
#[derive(Debug)]
pub(crate) struct S3Engine {
    bucket: Bucket,
    /// Where the folders of all runs are.
    path: Path,
    /// The folder of this one.
    run: Path,
    lease: Duration,
    /// When the lease was renewed; none before the first time, which comes at once.
    renewed: Lock<Option<Instant>>,
}

impl S3Engine {
    /// Connects to the bucket of `place`, and tries each right that it will need.
    ///
    /// # Errors
    /// It cannot be reached by the deadline, or refuses; one line that names the remedy.
    pub(crate) fn connect(place: &S3Place, deadline: Instant) -> Result<Self, PlaceError> {
        let bucket = Bucket::open(place)?;
        let path = Path::from(&*place.path);
        let run = path.clone().join(format!("{FOLDER}{}", random::name()?));
        let engine = Self { bucket, path, run, lease: LEASE, renewed: Lock::new(None) };
        let tried = (|| {
            engine.write_lease(deadline)?;
            engine.runs(None, deadline)?;
            engine.delete(&[0], deadline)
        })();
        tried.map_err(|error| {
            let name = engine.bucket.name();
            match error {
                EngineError::Refused(_) => place_error!("{name} {error}"),
                error => place_error!(
                    "{name} {error}; see that it is there, and set AWS_ENDPOINT_URL, AWS_REGION, \
                     AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
                ),
            }
        })?;
        Ok(engine)
    }

    fn object(&self, number: u64) -> Path {
        self.run.clone().join(format!("{number:016x}"))
    }

    /// Writes the lease; returns what the server says of it, the time above all (V1, V2).
    fn write_lease(&self, deadline: Instant) -> Result<ObjectMeta, EngineError> {
        let (lease, store) = (lease(&self.run), self.bucket.store());
        self.bucket.call(deadline, store.put(&lease, PutPayload::from_static(b"lease\n")))?;
        self.bucket.call(deadline, store.head(&lease))
    }

    /// Returns the folders of runs on one page of the list, the first one or that of a token, and
    /// the token of the next one. One page: a list need not end.
    fn runs(
        &self,
        page_token: Option<String>,
        deadline: Instant,
    ) -> Result<(Vec<Path>, Option<String>), EngineError> {
        let folder = match self.path.as_ref() {
            "" => String::new(),
            path => format!("{path}/"),
        };
        let delimiter = Some("/".into());
        let options = PaginatedListOptions { delimiter, page_token, ..Default::default() };
        let list = self.bucket.store().list_paginated(Some(&folder), options);
        let page = self.bucket.call(deadline, list)?;
        let is_run = |folder: &Path| {
            let name = folder.filename().and_then(|name| name.strip_prefix(FOLDER));
            name.is_some_and(|name| {
                name.len() == random::NAME_LEN && name.bytes().all(|byte| byte.is_ascii_hexdigit())
            })
        };
        let runs = page.result.common_prefixes.into_iter().filter(is_run);
        Ok((runs.collect(), page.page_token))
    }

    /// Removes what other runs left behind, by `now` of the server (V2, V3).
    fn sweep(&self, now: &ObjectMeta, deadline: Instant) -> Result<(), EngineError> {
        let lease_over = |found: &ObjectMeta| {
            let age = now.last_modified - found.last_modified;
            age.num_seconds() > self.lease.as_secs() as i64
        };
        let store = self.bucket.store();
        let (mut runs, mut next) = self.runs(None, deadline)?;
        loop {
            let Some(run) = runs.pop() else {
                let Some(token) = next else { return Ok(()) };
                (runs, next) = self.runs(Some(token), deadline)?;
                continue;
            };
            if run == self.run {
                continue;
            }
            let over = match self.bucket.call(deadline, store.head(&lease(&run))) {
                Ok(found) => lease_over(&found),
                Err(EngineError::Missing) => {
                    let all = store.list(Some(&run)).try_all(|found| {
                        let over = lease_over(&found);
                        async move { over }
                    });
                    self.bucket.call(deadline, all)?
                }
                Err(error) => return Err(error),
            };
            if over {
                self.remove_run(&run, deadline)?;
            }
        }
    }

    /// Removes all objects of a run, and then its lease (V1).
    fn remove_run(&self, run: &Path, deadline: Instant) -> Result<(), EngineError> {
        let store = self.bucket.store();
        let lease = lease(run);
        let kept = lease.clone();
        let objects = store.list(Some(run)).map_ok(|found| found.location);
        let objects = objects.try_filter(move |found| {
            let is_object = *found != kept;
            async move { is_object }
        });
        self.bucket.call(deadline, store.delete_stream(objects.boxed()).try_for_each(removed))?;
        self.bucket.call(deadline, store.delete(&lease))
    }
}

/// Returns the lease of a run's folder.
fn lease(run: &Path) -> Path {
    run.clone().join(PathPart::from("lease"))
}

async fn removed(_: Path) -> object_store::Result<()> {
    Ok(())
}

impl Engine for S3Engine {
    fn name(&self) -> &str {
        self.bucket.name()
    }

    fn object_bytes(&self) -> usize {
        OBJECT_BYTES
    }

    fn read_bytes(&self) -> usize {
        READ_BYTES
    }

    fn put(&self, number: u64, bytes: &[u8], deadline: Instant) -> Result<(), EngineError> {
        let object = PutPayload::from(bytes.to_vec());
        let path = self.object(number);
        self.bucket.call(deadline, self.bucket.store().put(&path, object)).map(drop)
    }

    fn get(
        &self,
        number: u64,
        offset: usize,
        out: &mut [u8],
        deadline: Instant,
    ) -> Result<(), EngineError> {
        if out.is_empty() {
            return Ok(());
        }
        let range = offset as u64..(offset + out.len()) as u64;
        let path = self.object(number);
        let bytes = self.bucket.call(deadline, self.bucket.store().get_range(&path, range))?;
        // S3 answers what there is of the range.
        if bytes.len() != out.len() {
            return Err(EngineError::Missing);
        }
        out.copy_from_slice(&bytes);
        Ok(())
    }

    fn delete(&self, numbers: &[u64], deadline: Instant) -> Result<(), EngineError> {
        let objects: Vec<_> = numbers.iter().map(|number| Ok(self.object(*number))).collect();
        let delete = self.bucket.store().delete_stream(stream::iter(objects).boxed());
        self.bucket.call(deadline, delete.try_for_each(removed))
    }

    fn renew(&self, deadline: Instant) -> Result<(), EngineError> {
        if self.renewed.lock().is_some_and(|then| then.elapsed() < RENEW_AFTER) {
            return Ok(());
        }
        let begun = Instant::now();
        let now = self.write_lease(deadline)?;
        *self.renewed.lock() = Some(begun);
        match self.sweep(&now, deadline) {
            // V4
            Err(EngineError::Late) => Ok(()),
            swept => swept,
        }
    }

    fn close(&self, deadline: Instant) -> Result<(), EngineError> {
        self.remove_run(&self.run, deadline)
    }
}
