//! The addresses of one region, and the keys of its pages.
//!
//! Addresses and keys stay as they are for the life of the region, so they are read without a lock,
//! also in a signal handler. Only the hints about sequences change. The one unsafe call drops
//! pages, for a caller that is in charge of them (word/W1).

use std::ops::Range;
use std::sync::Arc;

use super::streams::{Steps, Streams};
use crate::sys::map::Mapping;
use zfold_uffd::page::{page_len, pages_in};

/// Most pages that are brought in at once: 16 of 4 KiB, fewer larger ones.
pub(super) fn window_max() -> u16 {
    pages_in(64 << 10).max(2) as u16
}

/// Most pages of a window: those that the touching thread brings in at once, and those that
/// background threads bring ahead of it.
fn ahead_max() -> u16 {
    8 * window_max()
}

/// A range of managed addresses.
#[derive(Debug)]
pub(super) struct Space {
    map: Mapping,
    /// Address of the first byte.
    base: usize,
    /// Key of the first page.
    first: u32,
    pages: u32,
    /// Of touches of missing pages, and of writes to protected ones.
    streams: Streams,
    writes: Streams,
}

/// Returns the region that has a key, of regions in the order of their keys.
pub(super) fn space_of(spaces: &[Arc<Space>], key: u32) -> Option<&Arc<Space>> {
    let behind = spaces.partition_point(|space| space.keys().start <= key);
    spaces[..behind].last().filter(|space| space.keys().contains(&key))
}

impl Space {
    pub(super) fn new(map: Mapping, first: u32, pages: u32) -> Self {
        let base = map.range(0..0).start;
        let (streams, writes) = (Streams::default(), Streams::default());
        Self { map, base, first, pages, streams, writes }
    }

    /// Returns the pages to which writes are to be allowed for a write to `key`, that one first.
    pub(super) fn written(&self, key: u32) -> Steps {
        self.writes.touched(key, ahead_max()).within(&self.keys())
    }

    /// Drops the contents of pages, which the caller is in charge of.
    pub(super) fn drop_pages(&self, keys: Range<u32>) {
        let at = |key: u32| (key - self.first) as usize;
        // SAFETY: word/W1: a thread that touches one of them waits until the caller is done; the
        // region's owner has discarded the contents.
        unsafe { self.map.drop_pages(at(keys.start)..at(keys.end)) };
    }

    pub(super) fn range(&self) -> Range<usize> {
        self.base..self.base + self.pages as usize * page_len()
    }

    pub(super) fn contains(&self, address: usize) -> bool {
        self.range().contains(&address)
    }

    /// Keys of all pages.
    pub(super) fn keys(&self) -> Range<u32> {
        self.first..self.first + self.pages
    }

    /// Key of the page of an address, which is one of the region's.
    pub(super) fn key_of(&self, address: usize) -> u32 {
        debug_assert!(self.contains(address));
        self.first + ((address - self.base) / page_len()) as u32
    }

    /// Address of the page of a key, which is one of the region's.
    pub(super) fn address_of(&self, key: u32) -> usize {
        debug_assert!(self.keys().contains(&key));
        self.base + (key - self.first) as usize * page_len()
    }

    /// Addresses of the pages of some keys, which are the region's.
    pub(super) fn addresses_of(&self, keys: &Range<u32>) -> Range<usize> {
        let start = self.address_of(keys.start);
        start..start + keys.len() * page_len()
    }

    /// Returns the pages to bring for a touch of `key`, that one first: more and more of them if it
    /// continues a sequence.
    pub(super) fn window(&self, key: u32) -> Steps {
        self.streams.touched(key, ahead_max()).within(&self.keys())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_brings_more_and_more_up_to_the_end() {
        let space = Space::new(Mapping::new(64 * page_len()).unwrap(), 100, 64);
        for downwards in [false, true] {
            let (mut at, mut expected) = (0, 1);
            while at < 64 {
                let window = space.window(if downwards { 163 - at } else { 100 + at });
                let count = u32::from(window.count);
                assert_eq!(count, expected.min(ahead_max().into()).min(64 - at), "at {at}");
                at += count;
                expected *= 2;
            }
            assert!(expected > window_max().into());
        }
    }
}
