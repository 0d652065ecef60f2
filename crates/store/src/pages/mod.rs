//! Handles a page's bytes: they are placed, read back and released.
//!
//! ```text
//!   place:    page -> codec -> gains?  -> pool object -> entry
//!                           -> no gain -> raw object, or refused
//!   read:     entry -> word fill | pool object in place | bytes on the backing file
//!                   -> codec or copy -> page
//!   release:  entry -> the object is freed, or the units of the backing file
//! ```
//!
//! All of it goes by entries and knows no slots: the caller makes sure, by the lock of the slot,
//! that no thread releases the referenced data while it is read (store/K2).

mod ahead;
pub(crate) mod backed;
pub(crate) mod contexts;
mod duplicates;
pub(crate) mod objects;
mod place;
mod read;
mod release;
pub(crate) mod same;

use zfold_pool::Pool;

use crate::codec::CodecError;
use crate::options::{Incompressible, StoreOptions};
use crate::pages::backed::Backed;
use crate::stats::Counts;
use contexts::{Contexts, KEY_BYTES};
use duplicates::Duplicates;
use objects::Objects;

/// The pool, the backing file, and how pages get there.
#[derive(Debug)]
pub(crate) struct Pages {
    pub(crate) objects: Objects,
    /// Bytes of a page.
    pub(crate) len: usize,
    pub(crate) contexts: Contexts,
    pub(crate) backed: Option<Backed>,
    pub(crate) counts: Counts,
    pub(crate) incompressible: Incompressible,
    /// Bytes of the key in front of each object.
    header: usize,
}

impl Pages {
    /// Returns what keeps no page yet.
    ///
    /// # Errors
    /// When a codec cannot be set up.
    pub(crate) fn new(pool: Box<dyn Pool>, options: &StoreOptions) -> Result<Self, CodecError> {
        let len = pool.stats().page_size.bytes();
        Ok(Self {
            contexts: Contexts::new(len, options.codecs())?,
            objects: Objects::new(pool, options.slots, options.deduplicate),
            len,
            backed: options
                .backing
                .as_ref()
                .map(|backing| Backed::new(backing, options.limit_bytes)),
            counts: Counts::default(),
            incompressible: options.incompressible,
            header: if options.key_header { KEY_BYTES } else { 0 },
        })
    }

    /// Returns whether what slots have, but for same-filled pages, is objects that they own.
    pub(crate) fn are_owned(&self) -> bool {
        self.objects.are_owned() && self.backed.is_none()
    }

    /// Returns how many pages share another one's object.
    pub(crate) fn duplicate_pages(&self) -> u64 {
        let Some(duplicates) = self.objects.duplicates() else { return 0 };
        let (objects, references) = duplicates.count();
        references.saturating_sub(objects)
    }

    /// Returns the bytes of memory besides the pool: codec contexts, the table of duplicates, the
    /// map and the buffers of the backing file.
    pub(crate) fn metadata_bytes(&self) -> u64 {
        self.contexts.bytes()
            + self.objects.duplicates().map_or(0, Duplicates::bytes)
            + self.backed.as_ref().map_or(0, Backed::metadata_bytes)
    }
}
