//! Reading an object by ranges, of which the next is fetched while the last is used.
//!
//! - F1: all ranges are of one state of the object: each is asked for with its tag, and a server
//!   that has another state by then refuses.

use std::io::{self, Read};
use std::mem;
use std::sync::Arc;

use object_store::aws::AmazonS3;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore as _};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::bucket::failed;

/// Length of the first range, for callers that need only the beginning, and the most of one range.
const FIRST: u64 = 256 << 10;
const MOST: u64 = 8 << 20;

/// An object that is being read.
pub(super) struct Download {
    store: Arc<AmazonS3>,
    threads: Handle,
    found: ObjectMeta,
    /// Where the next range begins, and how long it is to be.
    at: u64,
    len: u64,
    fetched: Vec<u8>,
    used: usize,
    /// The range that is on its way.
    next: Option<JoinHandle<io::Result<Vec<u8>>>>,
}

impl Download {
    pub(super) fn new(store: Arc<AmazonS3>, threads: Handle, found: ObjectMeta) -> Self {
        let (fetched, used, next) = (Vec::new(), 0, None);
        Self { store, threads, found, at: 0, len: FIRST, fetched, used, next }
    }

    /// Begins to fetch the next range, if there is one.
    fn fetch(&mut self) {
        let (from, end) = (self.at, self.found.size.min(self.at + self.len));
        if from == end {
            return;
        }
        self.at = end;
        self.len = MOST.min(2 * self.len);
        let (store, key) = (Arc::clone(&self.store), self.found.location.clone());
        let options = GetOptions {
            range: Some(GetRange::Bounded(from..end)),
            if_match: self.found.e_tag.clone(),
            ..GetOptions::default()
        };
        self.next = Some(self.threads.spawn(async move {
            let got = store.get_opts(&key, options).await.map_err(|error| failed(&error))?;
            let bytes = got.bytes().await.map_err(|error| failed(&error))?;
            let is_whole = bytes.len() as u64 == end - from;
            is_whole.then(|| bytes.into()).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
        }));
    }
}

impl Read for Download {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.used == self.fetched.len() {
            if self.next.is_none() {
                self.fetch();
            }
            let Some(next) = self.next.take() else { return Ok(0) };
            self.fetched = self.threads.block_on(next)??;
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

impl Drop for Download {
    fn drop(&mut self) {
        if let Some(next) = &self.next {
            next.abort();
        }
    }
}
