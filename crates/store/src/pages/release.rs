//! Giving back what pages took.

use zfold_pool::HandleError;

use super::Pages;
use super::duplicates::Duplicates;
use crate::entry::{Entry, Flag, State};

impl Pages {
    /// Frees the data to which an entry that is in no slot any longer refers.
    #[inline]
    pub(crate) fn release(&self, entry: Entry) {
        if entry.state.in_pool() {
            // store/K2: no reader is left, because the entry was taken under the slot's lock. A
            // dead pool frees nothing; its objects go with it.
            let freed = self.objects.free(entry, self.object_len(entry.state));
            debug_assert!(matches!(freed, Ok(()) | Err(HandleError::Dead)), "{freed:?}");
        } else if let (true, Some(backed)) = (entry.state.has(Flag::Backed), &self.backed) {
            backed.free(entry.place().unit, backed.units(entry.state.len()));
        }
    }

    /// Returns whether a page with these kept bytes shares its object with another one.
    pub(crate) fn is_shared(&self, state: State, kept: &[u8]) -> bool {
        let shared = |duplicates: &Duplicates| duplicates.references(kept) > 1;
        state.has(Flag::Shared) && self.objects.duplicates().is_some_and(shared)
    }
}
