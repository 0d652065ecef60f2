//! The pages that every holder gets: distinct contents of memory, without those of one word.

use std::path::PathBuf;

use zfold_compare::input::PageSet;
use zfold_store::backing::AlignedBuffer;

use crate::experiment::Error;
use crate::experiment::content::PAGE_BYTES;

/// Name of the experiment.
pub const NAME: &str = "density";

/// Pages at addresses that suit writes past the page cache; at least one.
#[derive(Debug)]
pub(super) struct Pages {
    bytes: AlignedBuffer,
    /// Pages of one repeated word, which were left out: they take no memory anywhere.
    pub(super) same_filled: usize,
}

impl Pages {
    /// Returns the pages of captures: of the built-in ones if there are no others.
    ///
    /// # Errors
    /// [`Error::Input`] if a capture cannot be read; [`Error::Other`] if nothing is left.
    pub(super) fn of(captures: &[PathBuf]) -> Result<Self, Error> {
        if captures.is_empty() {
            return Self::kept(&PageSet::builtin(PAGE_BYTES));
        }
        let load = |path: &PathBuf| PageSet::from_capture(path, PAGE_BYTES);
        Self::kept(&captures.iter().map(load).collect::<Result<Vec<_>, _>>()?)
    }

    fn kept(sets: &[PageSet]) -> Result<Self, Error> {
        let all = || sets.iter().flat_map(PageSet::pages);
        let kept: Vec<&[u8]> = all().filter(|page| !is_same_filled(page)).collect();
        if kept.is_empty() {
            let line = format!("{NAME}: every page is one word over and over; give other pages");
            return Err(Error::Other(line));
        }
        let mut bytes = AlignedBuffer::new(kept.len() * PAGE_BYTES);
        for (place, page) in bytes.chunks_exact_mut(PAGE_BYTES).zip(&kept) {
            place.copy_from_slice(page);
        }
        Ok(Self { bytes, same_filled: all().count() - kept.len() })
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len() / PAGE_BYTES
    }

    /// Returns a page; those beyond the last begin anew.
    pub(super) fn page(&self, index: usize) -> &[u8] {
        &self.bytes[index % self.len() * PAGE_BYTES..][..PAGE_BYTES]
    }
}

/// Returns whether a page is one word of eight bytes, over and over.
fn is_same_filled(page: &[u8]) -> bool {
    page[..page.len() - 8] == page[8..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(pages: &[[u8; PAGE_BYTES]]) -> PageSet {
        PageSet::new("test", PAGE_BYTES, pages.concat()).unwrap()
    }

    #[test]
    fn pages_of_one_word_are_left_out() {
        let word = [7; PAGE_BYTES];
        let mut other = word;
        other[PAGE_BYTES - 1] = 8;
        let pages = Pages::kept(&[set(&[word, other]), set(&[word])]).unwrap();
        assert_eq!((pages.len(), pages.same_filled), (1, 2));
        assert_eq!(pages.page(0), other);
        assert_eq!(pages.page(1), other);
        assert_eq!(pages.page(0).as_ptr().addr() % PAGE_BYTES, 0);
        assert!(Pages::kept(&[set(&[word])]).is_err());
    }

    #[test]
    fn captures_are_read_from_files_if_there_are_any() {
        assert_eq!(Pages::of(&[]).unwrap().len() + Pages::of(&[]).unwrap().same_filled, 5 * 1024);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("two");
        let mut bytes = [0; 2 * PAGE_BYTES];
        bytes[5] = 1;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(Pages::of(std::slice::from_ref(&path)).unwrap().len(), 1);
        assert!(matches!(Pages::of(&[folder.path().join("none")]), Err(Error::Input(_))));
    }
}
