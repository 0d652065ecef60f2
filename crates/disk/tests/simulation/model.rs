//! What a device may hold: for each page, the contents that are possible.
//!
//! A page has one possible content, until a write of it fails: then it has that of before, too,
//! because a page changes as a whole or not at all, and a failed request may have changed any of
//! its pages. A read that shows one rules the others out.

use std::ops::Range;
use std::sync::Arc;

pub(crate) const PAGE: usize = 4096;

/// Most contents that a page is followed with; a page that has more is to be read or overwritten.
pub(crate) const CONTENTS_MAX: usize = 16;

type Page = Arc<[u8]>;

#[derive(Clone, Debug)]
pub(crate) struct Model {
    pages: Vec<Vec<Page>>,
}

/// The part of a request that lies in one page: the page, bytes of it, bytes of the request.
pub(crate) fn parts(
    offset: u64,
    len: usize,
) -> impl Iterator<Item = (usize, Range<usize>, Range<usize>)> {
    let offset = offset as usize;
    (offset / PAGE..(offset + len).div_ceil(PAGE)).map(move |page| {
        let begin = (page * PAGE).max(offset);
        let end = (page * PAGE + PAGE).min(offset + len);
        (page, begin - page * PAGE..end - page * PAGE, begin - offset..end - offset)
    })
}

impl Model {
    pub(crate) fn new(pages: usize) -> Self {
        Self { pages: vec![vec![zeros()]; pages] }
    }

    pub(crate) fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Notes a write that succeeded or failed.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8], done: bool) {
        for (page, within, request) in parts(offset, data.len()) {
            self.change(page, done, |bytes| {
                bytes[within.clone()].copy_from_slice(&data[request.clone()]);
            });
        }
    }

    /// Notes a discard or write of zeros that succeeded or failed.
    pub(crate) fn zero(&mut self, offset: u64, len: usize, done: bool) {
        for (page, within, _) in parts(offset, len) {
            self.change(page, done, |bytes| bytes[within.clone()].fill(0));
        }
    }

    fn change(&mut self, page: usize, done: bool, change: impl Fn(&mut [u8])) {
        let contents = &mut self.pages[page];
        let mut changed: Vec<Page> = if done { Vec::new() } else { contents.clone() };
        for content in contents.iter() {
            let mut bytes = content.to_vec();
            change(&mut bytes);
            if !changed.iter().any(|content| **content == *bytes) {
                changed.push(bytes.into());
            }
        }
        *contents = changed;
    }

    /// Takes note of bytes read; the error names a page that cannot hold them.
    pub(crate) fn read(&mut self, offset: u64, found: &[u8]) -> Result<(), usize> {
        for (page, within, request) in parts(offset, found.len()) {
            let contents = &mut self.pages[page];
            contents.retain(|content| content[within.clone()] == found[request.clone()]);
            if contents.is_empty() {
                return Err(page);
            }
        }
        Ok(())
    }

    /// Takes note that a page is all zeros; returns whether it can be.
    pub(crate) fn read_zeros(&mut self, page: usize) -> bool {
        self.read((page * PAGE) as u64, &[0; PAGE]).is_ok()
    }

    /// Returns a page that has become too uncertain to be written to in parts.
    pub(crate) fn uncertain(&self) -> Option<usize> {
        self.pages.iter().position(|contents| contents.len() > CONTENTS_MAX)
    }
}

fn zeros() -> Page {
    Arc::new([0; PAGE])
}
