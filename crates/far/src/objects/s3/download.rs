//! Reading an object by ranges, of which the next is fetched while the last is used.
//!
//! - F1: all ranges are of one state of the object: each is asked for with its tag, and a server
//!   that has another state by then refuses.

use std::io::{self, Read};
use std::mem;
use std::sync::Arc;

use futures_util::TryFutureExt as _;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore as _};
use tokio::task::JoinHandle;

use super::target::{Target, insist, stream_error};
use crate::engine::EngineError;

/// Length of the first range, for callers that need only the beginning, and the most of one range.
const FIRST: u64 = 256 << 10;
const MOST: u64 = 8 << 20;

/// An object that is being read.
pub(super) struct Download<'a> {
    object: &'a Target,
    found: ObjectMeta,
    /// Where the next range begins, and how long it is to be.
    at: u64,
    len: u64,
    fetched: Vec<u8>,
    used: usize,
    /// The range that is on its way.
    next: Option<JoinHandle<Result<Vec<u8>, EngineError>>>,
}

impl<'a> Download<'a> {
    pub(super) fn new(object: &'a Target, found: ObjectMeta) -> Self {
        Self { object, found, at: 0, len: FIRST, fetched: Vec::new(), used: 0, next: None }
    }

    /// Begins to fetch the next range, if there is one.
    fn fetch(&mut self) {
        let (from, end) = (self.at, self.found.size.min(self.at + self.len));
        if from == end {
            return;
        }
        self.at = end;
        self.len = MOST.min(2 * self.len);
        let (store, key) = (Arc::clone(self.object.bucket.store()), self.object.key.clone());
        let options = GetOptions {
            range: Some(GetRange::Bounded(from..end)),
            if_match: self.found.e_tag.clone(),
            ..GetOptions::default()
        };
        self.next = Some(self.object.bucket.threads().spawn(async move {
            let get = || store.get_opts(&key, options.clone()).and_then(|got| got.bytes());
            let bytes = insist(get).await?;
            if bytes.len() as u64 == end - from {
                Ok(bytes.into())
            } else {
                Err(EngineError::Missing)
            }
        }));
    }
}

impl Read for Download<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.used == self.fetched.len() {
            if self.next.is_none() {
                self.fetch();
            }
            let Some(next) = self.next.take() else { return Ok(0) };
            let fetched = self.object.bucket.threads().block_on(next)?;
            self.fetched = fetched.map_err(stream_error)?;
            self.used = 0;
            self.fetch();
        }
        let len = out.len().min(self.fetched.len() - self.used);
        out[..len].copy_from_slice(&self.fetched[self.used..][..len]);
        self.used += len;
        if self.used == self.fetched.len() {
            mem::take(&mut self.fetched);
            self.used = 0;
        }
        Ok(len)
    }
}

impl Drop for Download<'_> {
    fn drop(&mut self) {
        if let Some(next) = &self.next {
            next.abort();
        }
    }
}
