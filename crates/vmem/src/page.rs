//! The page size of all memory that regions and runs manage.

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;
