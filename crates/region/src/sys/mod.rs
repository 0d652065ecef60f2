//! The system calls that regions make, besides those of `zfold-uffd`, each with its contract. The
//! only other unsafe code in this crate lends out the memory of regions.

pub(crate) mod claims;
pub(crate) mod map;
pub(crate) mod signal;
