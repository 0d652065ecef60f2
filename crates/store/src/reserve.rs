//! Address space for the tables of a store, which take memory only where they are written to.

use std::sync::Arc;

use zfold_pool::source::{PageSource as _, Reservation, SourceError, SystemPages};

/// Returns room for `count` values of `size` bytes, all zeros, which begins at a page.
///
/// # Errors
/// The address space cannot be reserved.
pub(crate) fn reserve(count: u64, size: usize) -> Result<Arc<dyn Reservation>, SourceError> {
    let bytes = usize::try_from(count).ok().and_then(|count| count.checked_mul(size));
    let bytes = bytes.and_then(|bytes| bytes.checked_next_multiple_of(64 << 10));
    let bytes = bytes.ok_or(SourceError::AddressSpace { bytes: usize::MAX })?;
    let range = SystemPages.reserve(bytes)?;
    range.commit(0, bytes)?;
    Ok(range)
}
