//! Pages of an image: a bit for each.
//!
//! The bits of a working set are hints. If threads see changes in another order, a page is asked
//! for that could have been put in, or one too many is put in; so all accesses are relaxed. A set
//! that is not a hint is filled by one thread before others have it.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::core::table::next;

/// The set.
#[derive(Debug)]
pub(crate) struct PageSet {
    words: Box<[AtomicU64]>,
}

impl PageSet {
    /// Returns an empty set of so many pages.
    pub(crate) fn new(pages: u64) -> Self {
        Self { words: (0..pages.div_ceil(64)).map(|_| AtomicU64::new(0)).collect() }
    }

    pub(crate) fn add(&self, page: u64) {
        if let Some(word) = self.words.get((page / 64) as usize) {
            word.fetch_or(1 << (page % 64), Ordering::Relaxed);
        }
    }

    pub(crate) fn clear(&self) {
        self.words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Returns how many pages are in it.
    pub(crate) fn len(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum()
    }

    /// Returns the first page from `page` on that is in it.
    pub(crate) fn next(&self, page: u64) -> Option<u64> {
        self.next_in(page..u64::MAX)
    }

    /// Returns the first page of a range that is in it; reads no word after the range's last.
    pub(crate) fn next_in(&self, pages: Range<u64>) -> Option<u64> {
        let end = pages.end.min(self.words.len() as u64 * 64);
        next(&self.words, pages.start..end, 0)
    }

    /// Returns its bits, a page of the store at a time.
    pub(crate) fn to_pages(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        self.words.chunks(512).map(|words| {
            let words = words.iter().map(|word| word.load(Ordering::Relaxed).to_le_bytes());
            let mut page: Vec<u8> = words.flatten().collect();
            page.resize(4096, 0);
            page
        })
    }

    /// Adds the bits of the `number`th page.
    pub(crate) fn add_page(&self, number: usize, page: &[u8]) {
        let words = self.words.iter().skip(number * 512);
        for (word, bytes) in words.zip(page.chunks_exact(8)) {
            let bits = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
            word.fetch_or(bits, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_found_and_comes_back_from_pages() {
        let pages = 100_000;
        let (set, again) = (PageSet::new(pages), PageSet::new(pages));
        let some = [0, 63, 64, 5_000, 32_767, 32_768, 99_999];
        some.iter().for_each(|&page| set.add(page));
        set.add(1 << 40);
        set.to_pages().enumerate().for_each(|(number, page)| again.add_page(number, &page));
        assert_eq!(set.to_pages().count(), 4);
        let mut found = Vec::new();
        let mut from = 0;
        while let Some(page) = again.next(from) {
            found.push(page);
            from = page + 1;
        }
        assert_eq!((found.as_slice(), again.len()), (&some[..], 7));
        assert_eq!((again.next_in(1..63), again.next_in(1..64)), (None, Some(63)));
        assert_eq!((again.next_in(64..64), again.next_in(65..6400)), (None, Some(5_000)));
        assert_eq!((again.next_in(5_001..5_056), again.next_in(200_000..300_000)), (None, None));
        set.clear();
        assert_eq!((set.len(), set.next(0)), (0, None));
    }
}
