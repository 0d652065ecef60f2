//! What is decided about the pages of an address space, without a lock, a thread or a system call.

pub(crate) mod kept;
pub(crate) mod loads;
#[cfg(test)]
mod model;
pub(crate) mod pages;
pub(crate) mod ranges;
pub(crate) mod space;
pub(crate) mod streams;
