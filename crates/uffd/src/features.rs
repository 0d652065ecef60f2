//! The features and faults that a descriptor is opened for.

use linux_raw_sys::general as raw;

/// Features that the kernel is asked for when a descriptor is opened: `UFFD_FEATURE_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features(pub(crate) u64);

impl Features {
    /// A missing page raises `SIGBUS` in the thread that touched it; no message is sent.
    pub const SIGBUS: Self = Self(raw::UFFD_FEATURE_SIGBUS as u64);
    /// A message names the thread that waits for the page.
    pub const THREAD_ID: Self = Self(raw::UFFD_FEATURE_THREAD_ID as u64);
    /// Pages can be moved within the address space.
    pub const MOVE: Self = Self(raw::UFFD_FEATURE_MOVE as u64);
    /// Messages report registered mappings that were moved (and stay registered), were unmapped, or
    /// are about to be discarded. The thread that does so waits until the message is read, and
    /// until then no page can be filled in or moved.
    pub const CHANGES: Self = Self(
        (raw::UFFD_FEATURE_EVENT_REMAP
            | raw::UFFD_FEATURE_EVENT_REMOVE
            | raw::UFFD_FEATURE_EVENT_UNMAP) as u64,
    );
    /// Of these, only discards.
    pub const DISCARDS: Self = Self(raw::UFFD_FEATURE_EVENT_REMOVE as u64);
    /// A message brings the descriptor of a child of fork, whose mappings stay registered. Needs
    /// `CAP_SYS_PTRACE`.
    pub const FORKS: Self = Self(raw::UFFD_FEATURE_EVENT_FORK as u64);

    /// Messages report writes to protected pages of anonymous memory; without messages, such a
    /// write raises the signal that a missing page does.
    pub const PROTECT: Self = Self(raw::UFFD_FEATURE_PAGEFAULT_FLAG_WP as u64);

    /// Accesses of pages can be seen ([`Uffd::watch`](crate::Uffd::watch)); Linux 7.3 or later,
    /// where the processor has page tables for it. An access is never reported and never waits.
    /// These are `UFFD_FEATURE_RWP` and `UFFD_FEATURE_RWP_ASYNC`.
    pub const ACCESSES: Self = Self(1 << 17 | 1 << 18);

    /// Returns both sets of features.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Which faults on missing pages the descriptor reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Faults {
    /// Faults of user code; the kernel's own accesses fail with `EFAULT`. Every process may use it.
    UserOnly,
    /// All; needs the right to trace, the sysctl, or access to the device.
    All,
}
