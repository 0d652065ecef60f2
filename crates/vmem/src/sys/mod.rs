//! The system calls of this crate, each with its contract; nothing else here is unsafe but the
//! memory that regions lend out.

pub(crate) mod advice;
pub(crate) mod claims;
pub(crate) mod inherited;
pub(crate) mod map;
pub(crate) mod pagemap;
pub(crate) mod proc;
pub(crate) mod process;
pub(crate) mod procmap;
pub(crate) mod ptrace;
pub(crate) mod registers;
pub(crate) mod remote;
pub(crate) mod seccomp;
pub(crate) mod signal;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod uffd;
pub(crate) mod urgency;
