//! The system calls of this crate, each with its contract; nothing else here is unsafe but the
//! memory that regions lend out.

pub(crate) mod interrupt;
pub(crate) mod pagemap;
pub(crate) mod remote;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod uffd;
