//! The decisions about the pages of an address space, without locks, threads or system calls.

pub(crate) mod kept;
pub(crate) mod loads;
#[cfg(test)]
mod model;
pub(crate) mod pages;
pub(crate) mod ranges;
pub(crate) mod space;
pub(crate) mod streams;
