//! Marks of pages whose accesses the hand wants to see (`zfold_uffd::policy::watched`); both
//! functions are for those that hold the lock of the space (seen/A4).

use crate::core::pages::told::{Bits, bits_of};
use crate::core::ranges::Pages;
use crate::core::space::Space;
use crate::spaces::managed::Managed;

/// Returns which pages of a range within 2 MiB were accessed since they were marked; `None` if that
/// cannot be seen.
pub(super) fn accessed(managed: &Managed, pages: &Pages) -> Option<Bits> {
    managed.access()?.accessed(managed.pid(), pages).ok().map(bits_of)
}

/// Marks the pages that have come since the last time, and those that the hand, which has just
/// passed, wants to look at again.
///
/// # Cost
/// About a microsecond for each run of neighbours.
pub(super) fn mark(managed: &Managed, space: &mut Space) {
    let Some(access) = managed.access() else { return };
    for run in space.take_unmarked() {
        if access.watch(&run).is_err() {
            // One of its mappings cannot be marked (seen/A5).
            space.unwatch(&run);
        }
    }
}
