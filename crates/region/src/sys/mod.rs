//! The system calls that regions make, besides those of `zfold-uffd`, each with its contract.
//! Nothing else in this crate is unsafe but the memory that regions lend out.

pub(crate) mod claims;
pub(crate) mod map;
pub(crate) mod signal;
