//! The data that experiments store: pages of real memory, the objects that compression makes of
//! them, and which thread keeps which object in a pool.
//!
//! Every byte that is read back is compared with the one stored: [`Keeper::check`] for objects,
//! [`verify`] for anything else.

use std::ops::RangeInclusive;

use zfold_compare::input::PageSet;
use zfold_pool::{Handle, HandleError, Pool, ReadGuard};
use zfold_store::CodecKind;

use crate::experiment::error::Error;

/// Bytes of a page.
pub(crate) const PAGE_BYTES: usize = 4096;

/// The pages of all built-in captures, one capture after the other, each with its object: what
/// LZ4 makes of it, or the page itself if that is no shorter.
#[derive(Debug)]
pub(crate) struct Content {
    /// Pages one after the other.
    pages: Vec<u8>,
    /// Objects one after the other.
    objects: Vec<u8>,
    /// Where each object ends.
    ends: Vec<usize>,
}

impl Content {
    /// Returns the pages of which the object is of one of these lengths in bytes.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn of_lens(lens: RangeInclusive<usize>) -> Self {
        let mut content = Self { pages: Vec::new(), objects: Vec::new(), ends: Vec::new() };
        let codec = zfold_store::CodecSpec::from(CodecKind::Lz4).context(PAGE_BYTES);
        let mut codec = codec.expect("a page has bytes");
        let mut compressed = [0; PAGE_BYTES];
        for capture in PageSet::builtin(PAGE_BYTES) {
            for page in capture.pages() {
                let gains = codec.compress(page, &mut compressed[..PAGE_BYTES - 1]);
                let object = gains.map_or(page, |len| &compressed[..len]);
                if lens.contains(&object.len()) {
                    content.pages.extend_from_slice(page);
                    content.objects.extend_from_slice(object);
                    content.ends.push(content.objects.len());
                }
            }
        }
        assert!(!content.ends.is_empty(), "no object has {lens:?} bytes");
        content
    }

    /// Returns all pages.
    pub(crate) fn all() -> Self {
        Self::of_lens(0..=PAGE_BYTES)
    }

    /// Returns the number of pages.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the mean length of an object in bytes.
    pub(crate) fn object_len_mean(&self) -> usize {
        self.objects.len() / self.len()
    }

    /// Returns a page; those beyond the last begin anew.
    pub(crate) fn page(&self, index: usize) -> &[u8] {
        &self.pages[index % self.len() * PAGE_BYTES..][..PAGE_BYTES]
    }

    /// Returns the object of a page; those beyond the last begin anew.
    pub(crate) fn object(&self, index: usize) -> &[u8] {
        let index = index % self.len();
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.objects[start..self.ends[index]]
    }

    /// Returns `len` bytes of compressed pages, from another place for each `number`.
    ///
    /// # Panics
    /// If the objects are shorter than that together.
    pub(crate) fn object_of_len(&self, len: usize, number: usize) -> &[u8] {
        // A prime stride, so that neighbours have little in common.
        let start = number.wrapping_mul(7919) % (self.objects.len() - len + 1);
        &self.objects[start..][..len]
    }
}

/// Objects that one thread keeps in a pool, by slot, with their expected contents.
#[derive(Debug)]
pub(crate) struct Keeper<'a> {
    experiment: &'static str,
    pool: &'a dyn Pool,
    slots: Vec<Option<(Handle, &'a [u8])>>,
}

impl<'a> Keeper<'a> {
    /// Returns a keeper of `slots` empty slots.
    pub(crate) fn new(experiment: &'static str, pool: &'a dyn Pool, slots: usize) -> Self {
        Self { experiment, pool, slots: vec![None; slots] }
    }

    /// Returns whether a slot holds an object.
    pub(crate) fn holds(&self, slot: usize) -> bool {
        self.slots[slot].is_some()
    }

    /// Inserts an object into a slot, which is empty.
    ///
    /// # Errors
    /// [`Error::Alloc`].
    pub(crate) fn put(&mut self, slot: usize, object: &'a [u8]) -> Result<(), Error> {
        debug_assert!(!self.holds(slot));
        self.slots[slot] = Some((self.pool.insert(object)?, object));
        Ok(())
    }

    /// Reads the object of a slot, if it holds one, and compares every byte.
    ///
    /// # Errors
    /// [`Error::WrongBytes`], [`Error::Handle`].
    pub(crate) fn check(&self, slot: usize) -> Result<(), Error> {
        let Some((found, object)) = self.read(slot)? else { return Ok(()) };
        verify(self.experiment, object, &found, || format!("slot {slot}"))
    }

    /// Reads the object of a slot, if it holds one; returns it beside what was stored.
    ///
    /// # Errors
    /// [`Error::Handle`].
    pub(crate) fn read(&self, slot: usize) -> Result<Option<(ReadGuard<'_>, &'a [u8])>, Error> {
        let Some((handle, object)) = self.slots[slot] else { return Ok(None) };
        Ok(Some((self.pool.read(handle)?, object)))
    }

    /// Checks all slots.
    ///
    /// # Errors
    /// As [`Keeper::check`].
    pub(crate) fn check_all(&self) -> Result<(), Error> {
        (0..self.slots.len()).try_for_each(|slot| self.check(slot))
    }

    /// Frees the object of a slot, if it holds one. Compaction on another thread may hold it for
    /// a moment, so a busy object is tried again.
    ///
    /// # Errors
    /// [`Error::Handle`].
    pub(crate) fn take(&mut self, slot: usize) -> Result<(), Error> {
        let Some((handle, _)) = self.slots[slot].take() else { return Ok(()) };
        loop {
            match self.pool.free(handle) {
                Err(HandleError::Busy) => std::thread::yield_now(),
                freed => return Ok(freed?),
            }
        }
    }
}

#[cfg(test)]
impl Keeper<'_> {
    /// Puts objects of `bytes` in the place of all, which stay in the pool; returns how many.
    pub(crate) fn replace_all(&mut self, bytes: &[u8]) -> usize {
        let held = self.slots.iter_mut().flatten();
        held.map(|(handle, _)| *handle = self.pool.insert(bytes).unwrap()).count()
    }
}

/// Returns whether `found` equals the stored bytes.
///
/// # Errors
/// [`Error::WrongBytes`], naming `what`.
pub(crate) fn verify(
    experiment: &'static str,
    stored: &[u8],
    found: &[u8],
    what: impl FnOnce() -> String,
) -> Result<(), Error> {
    if stored == found { Ok(()) } else { Err(Error::WrongBytes { experiment, what: what() }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zfold_pool::{Allocator, PoolOptions};

    #[test]
    fn objects_are_those_of_their_pages_and_no_longer_than_asked() {
        let (all, short) = (Content::all(), Content::of_lens(100..=1000));
        assert_eq!(all.len(), 5 * 1024);
        assert!(short.len() < all.len());
        let codec = zfold_store::CodecSpec::from(CodecKind::Lz4).context(PAGE_BYTES);
        let (mut codec, mut page) = (codec.unwrap(), [0; PAGE_BYTES]);
        for index in 0..short.len() {
            assert!((100..=1000).contains(&short.object(index).len()));
            codec.decompress(short.object(index), &mut page).unwrap();
            assert_eq!(short.page(index), page);
        }
        assert_eq!(short.object(short.len()), short.object(0));
        assert_eq!(all.object_of_len(77, 12345).len(), 77);
        assert_ne!(all.object_of_len(77, 1), all.object_of_len(77, 2));
    }

    #[test]
    fn a_wrong_byte_is_noticed() {
        let pool = zfold_pool::create("test", &PoolOptions::new(Allocator::Zsmalloc)).unwrap();
        let mut keeper = Keeper::new("test", &*pool, 2);
        keeper.put(1, b"the bytes that were stored").unwrap();
        keeper.check_all().unwrap();
        assert_eq!(keeper.replace_all(b"The bytes that were stored"), 1);
        let error = keeper.check_all().unwrap_err();
        assert_eq!(error.to_string(), "test: wrong bytes came back: slot 1");
        assert!(verify("test", b"abc", b"ab", || "length".to_owned()).is_err());
    }

    #[test]
    fn a_busy_object_is_freed_when_its_reader_is_gone() {
        let pool = zfold_pool::create("test", &PoolOptions::new(Allocator::Zsmalloc)).unwrap();
        let mut keeper = Keeper::new("test", &*pool, 1);
        keeper.put(0, b"read").unwrap();
        let guard = pool.read(keeper.slots[0].unwrap().0).unwrap();
        std::thread::scope(|scope| {
            let freed = scope.spawn(|| keeper.take(0));
            std::thread::sleep(std::time::Duration::from_millis(5));
            assert_eq!(pool.stats().objects, 1);
            drop(guard);
            freed.join().unwrap().unwrap();
        });
        assert_eq!(pool.stats().objects, 0);
    }
}
