//! Reading pages back, from the pool or the backing file.

use zfold_pool::HandleError;

use super::objects::Object;
use super::{Pages, same};
use crate::entry::{Entry, Flag, Kind, State};
use crate::error::LoadError;
use crate::pages::backed::{Backed, ReadError};
use crate::pages::contexts::Loader;

/// A page that did not come back from the backing file, not counted yet: its units may have been
/// given to another page meanwhile.
#[derive(Debug)]
pub(crate) struct Unread(ReadError);

impl Pages {
    /// Reads the page of an entry in memory into `page`, zeros if it is empty; with the loader's
    /// codecs, if there is one.
    #[inline]
    pub(crate) fn read(
        &self,
        loader: Option<&mut Loader>,
        key: u64,
        entry: Entry,
        page: &mut [u8],
    ) -> Result<(), LoadError> {
        match entry.state.kind() {
            Kind::Empty => page.fill(0),
            Kind::Same => same::fill(page, entry.value),
            _ => {
                let object = self.object(key, entry)?;
                self.decode(loader, key, entry.state, self.payload(&object, key)?, page)?;
            }
        }
        Ok(())
    }

    /// Reads the page of an entry on the backing file into `page`. No slot need be locked
    /// (backed/B2); the inner error is that of a page that came back.
    pub(crate) fn read_backed(
        &self,
        key: u64,
        entry: Entry,
        page: &mut [u8],
    ) -> Result<Result<(), LoadError>, Unread> {
        let decode = |bytes: &[u8]| self.decode(None, key, entry.state, bytes, page);
        let decoded = self.backed_of(entry).read(key, entry.place(), entry.state.len(), decode);
        let decoded = decoded.map_err(Unread)?;
        self.counts.share().backing_reads_total.add(1);
        Ok(decoded)
    }

    /// Counts a page that did not come back although its entry is still there; returns the error of
    /// its load.
    pub(crate) fn count_unread(&self, key: u64, Unread(error): Unread) -> LoadError {
        let share = self.counts.share();
        match error {
            ReadError::Checksum => share.backing_damaged_total.add(1),
            ReadError::Io(_) => share.backing_failed_reads_total.add(1),
        }
        error.of_page(key)
    }

    /// Appends what is kept of the page of an entry to `kept`. If it is in memory, its slot is
    /// locked.
    pub(crate) fn copy_kept(
        &self,
        key: u64,
        entry: Entry,
        kept: &mut Vec<u8>,
    ) -> Result<(), LoadError> {
        if entry.state.kind() == Kind::Same {
            kept.extend_from_slice(&entry.value.to_le_bytes());
        } else if entry.state.in_pool() {
            let object = self.object(key, entry)?;
            kept.extend_from_slice(self.payload(&object, key)?);
        } else {
            let keep = |bytes: &[u8]| kept.extend_from_slice(bytes);
            let read = self.backed_of(entry).read(key, entry.place(), entry.state.len(), keep);
            read.map_err(|error| error.of_page(key))?;
        }
        Ok(())
    }

    /// Turns what is kept of a page into the page.
    #[inline]
    pub(crate) fn decode(
        &self,
        loader: Option<&mut Loader>,
        key: u64,
        state: State,
        bytes: &[u8],
        page: &mut [u8],
    ) -> Result<(), LoadError> {
        let decoded = match state.kind() {
            Kind::Raw if bytes.len() == page.len() => {
                page.copy_from_slice(bytes);
                true
            }
            Kind::Compressed => match loader {
                Some(loader) => loader.decompress(state.priority(), bytes, page).is_ok(),
                None => self.contexts.decompress(state.priority(), bytes, page).is_ok(),
            },
            _ => false,
        };
        if decoded { Ok(()) } else { Err(self.damaged(key)) }
    }

    /// Returns the object of an entry, whose slot the caller has locked or which no slot has; it
    /// may be looked at until that changes (objects/J1).
    #[inline]
    pub(crate) fn object(&self, key: u64, entry: Entry) -> Result<Object<'_>, LoadError> {
        let len = self.object_len(entry.state);
        self.objects.read(key, entry, len).map_err(|error| match error {
            HandleError::Dead => LoadError::Dead,
            _ => self.damaged(key),
        })
    }

    /// Returns the bytes of the object of a page with this state.
    #[inline]
    pub(super) fn object_len(&self, state: State) -> usize {
        self.header + state.len()
    }

    /// Asserts that the object of an entry in its slot is there.
    ///
    /// # Panics
    /// If it is not.
    pub(crate) fn check(&self, key: u64, entry: Entry) {
        self.objects.check(key, entry, self.object_len(entry.state));
    }

    /// Returns what follows the key header, which must name `key`.
    #[inline]
    pub(crate) fn payload<'a>(&self, object: &'a [u8], key: u64) -> Result<&'a [u8], LoadError> {
        if self.header == 0 {
            return Ok(object);
        }
        object.strip_prefix(&key.to_le_bytes()).ok_or_else(|| self.damaged(key))
    }

    fn backed_of(&self, entry: Entry) -> &Backed {
        debug_assert!(entry.state.has(Flag::Backed));
        self.backed.as_ref().expect("entries on it come from a backing file")
    }

    #[cold]
    pub(crate) fn damaged(&self, key: u64) -> LoadError {
        self.counts.share().decompress_fail_total.add(1);
        LoadError::Damaged { key }
    }
}
