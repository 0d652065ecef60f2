//! The page size of all memory that regions and runs manage.

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;

/// Returns whether a page is all zeros.
pub(crate) fn is_zero(page: &[u8]) -> bool {
    debug_assert_eq!(page.len(), PAGE);
    page[0] == 0 && page[PAGE - 1] == 0 && page[..PAGE - 1] == page[1..]
}
