//! What regions and runs share: userfaultfd, the size of a page, advice about memory, and which
//! pages leave.
//!
//! - [`Uffd`]: the kernel reports missing pages, and takes pages to put there.
//! - [`advice`]: pages leave, or are given up.
//! - [`page`]: how many bytes they have.
//! - [`policy`]: what is remembered of pages that left, and for how long they stay then.

#![cfg(target_os = "linux")]

pub mod advice;
mod features;
mod files;
pub mod page;
pub mod policy;
mod uffd;

pub use features::{Faults, Features};
pub use uffd::{Event, MESSAGE, Partial, Uffd, given_up, messages};
