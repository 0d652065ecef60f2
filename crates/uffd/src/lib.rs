//! Code that regions, runs, guests and disks share: userfaultfd, page sizes, the handler of
//! `SIGBUS`, and the policy of which pages leave.
//!
//! - [`Uffd`]: the kernel reports missing pages, and puts pages there.
//! - [`page`]: page sizes.
//! - [`Uffd::watch`]: accesses of pages are seen, where the kernel reports them.
//! - [`Pagemap`]: which pages are there, and which of them are protected from writes or were
//!   accessed.
//! - [`present`]: which pages of a file in memory are there.
//! - [`curve`]: what other limits would have done.
//! - [`sigbus`]: touches of missing pages are resolved in the thread that touches them.
//! - [`policy`]: what is remembered of pages that left, and how long they stay when they are back.

#![cfg(target_os = "linux")]

mod accesses;
pub mod curve;
mod features;
pub mod page;
mod pagemap;
pub mod policy;
pub mod present;
mod protect;
pub mod sigbus;
mod uffd;

pub use features::{Faults, Features};
pub use pagemap::Pagemap;
pub use uffd::{Event, MESSAGE, Partial, Uffd, given_up};

/// `MADV_DONTNEED` also for locked memory (Linux 5.18 and later).
pub const DONTNEED_LOCKED: libc::c_int = 24;
