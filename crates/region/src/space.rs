//! The addresses of one region, and the keys of its pages.
//!
//! Addresses and keys stay as they are for the life of the region, so they are read without a lock,
//! also in a signal handler. Only the hints about sequences change; simultaneous changes cost a
//! prefetch. The one unsafe call drops pages, for a caller that is in charge of them (word/W1).

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sys::map::Mapping;
use zfold_uffd::page::page_len;

/// Sequences of touches that are followed at the same time.
const STREAMS: usize = 4;

/// Most pages that are brought in at once: 16 of 4 KiB, fewer larger ones.
pub(super) fn window_max() -> u32 {
    ((64 << 10) / page_len()).max(2) as u32
}

/// Most pages of a window: those that the touching thread brings in at once, and those that
/// background threads bring ahead of it.
fn ahead_max() -> u32 {
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
    /// For each sequence, the page that it should touch next, and how many pages its last touch
    /// brought in: hints, each in one word.
    streams: [AtomicU64; STREAMS],
    turn: AtomicU64,
}

/// Returns the region that has a key, of regions in the order of their keys.
pub(super) fn space_of(spaces: &[Arc<Space>], key: u32) -> Option<&Arc<Space>> {
    let behind = spaces.partition_point(|space| space.keys().start <= key);
    spaces[..behind].last().filter(|space| space.keys().contains(&key))
}

impl Space {
    pub(super) fn new(map: Mapping, first: u32, pages: u32) -> Self {
        let base = map.range(0..0).start;
        Self { map, base, first, pages, streams: Default::default(), turn: AtomicU64::new(0) }
    }

    /// Drops the contents of pages, counted from the region's first; the caller is in charge of
    /// them.
    pub(super) fn drop_pages(&self, pages: Range<usize>) {
        // SAFETY: word/W1: a thread that touches one of them waits until the caller is done; the
        // region's owner has discarded the contents.
        unsafe { self.map.drop_pages(pages) };
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

    /// Returns how many pages from `key` on to bring: one, or twice as many as last time if the
    /// touch continues a sequence, which it does anywhere in its last window: what was to come
    /// ahead may be late.
    pub(super) fn window(&self, key: u32) -> u32 {
        // Relaxed: hints. Two simultaneous changes of one of them cost a prefetch.
        let follows = self.streams.iter().find(|stream| {
            let word = stream.load(Ordering::Relaxed);
            let (next, window) = ((word >> 32) as u32, word as u32);
            window > 0 && (next.saturating_sub(window) + 1..=next).contains(&key)
        });
        let (stream, window) = match follows {
            Some(stream) => {
                (stream, (stream.load(Ordering::Relaxed) as u32 * 2).clamp(1, ahead_max()))
            }
            None => {
                let turn = self.turn.fetch_add(1, Ordering::Relaxed) as usize;
                (&self.streams[turn % STREAMS], 1)
            }
        };
        let next = u64::from(key) + u64::from(window);
        stream.store(next << 32 | u64::from(window), Ordering::Relaxed);
        window.min(self.keys().end - key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_brings_more_and_more_up_to_the_end() {
        let space = Space::new(Mapping::new(64 * page_len()).unwrap(), 100, 64);
        let mut key = 100;
        let mut expected = 1;
        while key < 164 {
            let window = space.window(key);
            assert_eq!(window, expected.min(ahead_max()).min(164 - key), "at {key}");
            key += window;
            expected *= 2;
        }
        assert!(expected > window_max());
    }

    #[test]
    fn touches_here_and_there_bring_one_page_each() {
        let space = Space::new(Mapping::new(64 * page_len()).unwrap(), 0, 64);
        assert!([5, 50, 20, 3, 40, 7].iter().all(|&key| space.window(key) == 1));
    }
}
