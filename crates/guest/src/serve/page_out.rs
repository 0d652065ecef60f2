//! What becomes of guests that are told to page out.

use thiserror::Error;

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PagedOut {
    /// Pages that left meanwhile.
    pub left_pages: u64,
    /// Pages of these guests that are resident: the guests use them, or there was no room to keep
    /// them.
    pub resident_pages: u64,
}

/// Why nothing was done.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NoPageOut {
    /// There is no such guest.
    #[error("no guest has the number or the image '{0}': zfold guest stat lists guests")]
    Missing(String),
    /// Nothing of them can leave.
    #[error(
        "nothing can leave these guests: their VMMs have to hand over the file of their memory \
            while the server has a --resident-limit, see docs/use/guests-limit.md"
    )]
    Stays,
}
