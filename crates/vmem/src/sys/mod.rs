//! The system calls that regions and runs make, each with its contract; what only a run needs is in
//! `run/sys`. Nothing else in this crate is unsafe but the memory that regions lend out.

pub(crate) mod advice;
pub(crate) mod claims;
pub(crate) mod map;
pub(crate) mod signal;
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "much of it is for runs"))]
pub(crate) mod uffd;
