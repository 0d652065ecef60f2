//! Bringing pages into the pool.

use zfold_pool::AllocError;

use super::Pages;
use crate::content::Stored;
use crate::entry::{Entry, Kind, State};
use crate::error::StoreError;
use crate::options::Incompressible;

/// Bytes by which a page must become shorter to be worth a new object: about the distance of two
/// size classes.
const GAIN_MIN: usize = 16;

impl Pages {
    /// Brings `page` into the pool, compressed by the codec of `priority`; returns the entry that
    /// refers to it. The caller may hold a slot's lock.
    ///
    /// # Errors
    /// [`StoreError`]; nothing is left in the pool.
    pub(crate) fn place(
        &self,
        key: u64,
        page: &[u8],
        priority: u8,
    ) -> Result<(Entry, Stored), StoreError> {
        let context = &mut *self.contexts.mine();
        let header = self.header;
        // Without room to keep pages raw, anything that fits into a page is a gain.
        let (len_max, raw) = match self.incompressible {
            Incompressible::Reject => (self.len, None),
            Incompressible::Keep => {
                let huge = self.objects.pool().huge_len().min(self.len);
                (huge.saturating_sub(header + 1), Some(Stored::Raw))
            }
        };
        let compressed = self.contexts.compress(context, priority, page, header, len_max);
        let stored = compressed.map(|len| Stored::Compressed { len }).or(raw);
        let stored = stored.ok_or(StoreError::Incompressible)?;
        let (kind, len) = match stored {
            Stored::Compressed { len } => (Kind::Compressed, len),
            _ => {
                context.object[header..header + page.len()].copy_from_slice(page);
                (Kind::Raw, page.len())
            }
        };
        context.object[..header].copy_from_slice(&key.to_le_bytes()[..header]);
        let priority = if kind == Kind::Compressed { priority } else { 0 };
        let state = State::new(kind, len, priority);
        Ok((self.insert(key, state, &context.object[..header + len])?, stored))
    }

    /// Brings a restored page into the pool, of which `kept` is what was kept; returns its entry.
    ///
    /// # Errors
    /// [`StoreError`]; nothing is left in the pool.
    pub(crate) fn place_kept(
        &self,
        key: u64,
        state: State,
        kept: &[u8],
    ) -> Result<Entry, StoreError> {
        let context = &mut *self.contexts.mine();
        let object = &mut context.object[..self.header + kept.len()];
        object[..self.header].copy_from_slice(&key.to_le_bytes()[..self.header]);
        object[self.header..].copy_from_slice(kept);
        self.insert(key, state, object)
    }

    /// Compresses a page, of which `kept` is what is kept, with the codec of `priority`, into an
    /// object of its own; returns its entry. `None` if that gains nothing or the page is damaged.
    ///
    /// # Errors
    /// [`AllocError`]; nothing is left in the pool.
    pub(crate) fn place_again(
        &self,
        key: u64,
        old: State,
        kept: &[u8],
        priority: u8,
    ) -> Result<Option<Entry>, AllocError> {
        let header = self.header;
        let len_max = old.len().saturating_sub(GAIN_MIN);
        let len_max = len_max.min(self.objects.pool().huge_len().saturating_sub(header + 1));
        let mut page = self.contexts.take_page();
        let decoded = self.decode(None, key, old, kept, &mut page);
        let context = &mut *self.contexts.mine();
        let compressed = decoded
            .ok()
            .and_then(|()| self.contexts.compress(context, priority, &page, header, len_max));
        // As `put_page` does, which would borrow the context a second time.
        context.page = page;
        let Some(len) = compressed.filter(|&len| len > 0) else { return Ok(None) };
        context.object[..header].copy_from_slice(&key.to_le_bytes()[..header]);
        let state = State::new(Kind::Compressed, len, priority);
        self.objects.insert_own(key, state, &context.object[..header + len]).map(Some)
    }

    fn insert(&self, key: u64, state: State, object: &[u8]) -> Result<Entry, StoreError> {
        self.objects.insert(key, state, object).map_err(|error| match error {
            AllocError::TooLong { .. } => StoreError::Incompressible,
            error => StoreError::Pool(error),
        })
    }
}
