//! Reading an object by ranges.
//!
//! - F1: all ranges are of one state of the object: each is asked for with its tag, and a server
//!   that has another state by then refuses.

use std::io::{self, Cursor, Read};

use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore as _};

use super::bucket::Bucket;

/// Length of the first range, for callers that need only the beginning, and the most of one range.
const FIRST: u64 = 256 << 10;
const MOST: u64 = 8 << 20;

/// An object that is being read.
pub(super) struct Download<'a> {
    bucket: &'a Bucket,
    found: ObjectMeta,
    /// Where the next range begins, and how long it is to be.
    at: u64,
    len: u64,
    fetched: Cursor<Vec<u8>>,
}

impl<'a> Download<'a> {
    pub(super) fn new(bucket: &'a Bucket, found: ObjectMeta) -> Self {
        Self { bucket, found, at: 0, len: FIRST, fetched: Cursor::default() }
    }

    /// Fetches the next range.
    fn fetch(&mut self) -> io::Result<()> {
        // There is memory for one range.
        self.fetched = Cursor::default();
        let (from, end) = (self.at, self.found.size.min(self.at + self.len));
        let options = GetOptions {
            range: Some(GetRange::Bounded(from..end)),
            if_match: self.found.e_tag.clone(),
            ..GetOptions::default()
        };
        let bytes = self.bucket.call(async {
            self.bucket.store().get_opts(&self.found.location, options).await?.bytes().await
        })?;
        if bytes.len() as u64 != end - from {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        (self.at, self.len) = (end, MOST.min(2 * self.len));
        self.fetched = Cursor::new(bytes.into());
        Ok(())
    }
}

impl Read for Download<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let len = self.fetched.read(out)?;
        if len > 0 || out.is_empty() || self.at == self.found.size {
            return Ok(len);
        }
        self.fetch()?;
        self.fetched.read(out)
    }
}
