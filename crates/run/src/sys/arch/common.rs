//! Types that all architectures share.

/// The number of a call that an architecture does not have.
#[cfg(not(target_arch = "x86_64"))]
pub(super) const NO_CALL: libc::c_long = -1;

/// Programs of another kind that the same kernel runs.
#[derive(Debug)]
pub(crate) struct Foreign {
    /// `AUDIT_ARCH_*` of their calls.
    pub arch: u32,
    /// Their numbers of fork, clone, mremap, madvise, clone3 and process_madvise.
    pub watched: [u32; 6],
}

/// The system call in which a thread was seen before it was asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub number: u64,
    pub args: [u64; 6],
    pub stack: u64,
    /// The address after its instruction.
    pub instruction: u64,
}
