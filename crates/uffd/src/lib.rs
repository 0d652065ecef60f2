//! What regions and runs share: userfaultfd, the size of a page, and advice about memory.
//!
//! - [`Uffd`]: the kernel reports missing pages, and takes pages to put there.
//! - [`advice`]: pages leave, or are given up.
//! - [`page`]: 4096 bytes.

#![cfg(target_os = "linux")]

pub mod advice;
pub mod page;
mod uffd;

pub use uffd::{Event, Faults, Features, MESSAGE, Partial, Uffd, given_up, messages};
