//! How short of memory the machine and the own cgroup are: what tells a store to shrink.
//!
//! [`SystemPressure`] asks the kernel, `FakePressure` says what it is told to. What is measured
//! and when it counts as pressure, is said here once:
//!
//! | source | calm | urgent |
//! |:--|:--|:--|
//! | stalls: time of the last 10 s in which a task waited for memory | up to 5 % | from 50 % |
//! | memory that can be had without swapping, of all | from 10 % | up to 2 % |
//! | what is left below the limit of a cgroup, of the limit | from 10 % | up to 2 % |
//!
//! Stalls are those of the machine (`/proc/pressure/memory`) and of the own cgroup
//! (`memory.pressure`), memory is what `/proc/meminfo` says, and limits are those of the own cgroup
//! and of all above it (`memory.max`, or `memory.limit_in_bytes` in version 1).
//!
//! Between calm and urgent, the [`Level`] goes from 0 to 1 in proportion; the tightest source
//! counts. Stalls are the better measure, being what shrinking is to prevent, but not every kernel
//! counts them, a cgroup of version 1 never does, and they come when memory is gone already.
//! Stalls count for as long as they go on: the kernel's average remembers them longer than that,
//! so it is ignored when nobody waited since the last call.
//!
//! A cgroup's usage counts the page cache, too. What of it has not been used for long
//! (`inactive_file`) can be had at once and counts as left. For [`MemoryLeft`], which says how much
//! a process can still have before the kernel ends one, more of it does.
//!
//! Sources: the kernel's documentation of pressure stall information
//! (`Documentation/accounting/psi.rst`), of `/proc/meminfo` (`filesystems/proc.rst`) and of the
//! memory controllers (`admin-guide/cgroup-v1/memory.rst`, `admin-guide/cgroup-v2.rst`).

#[cfg(any(test, feature = "testing"))]
mod fake;
mod left;
mod level;
#[cfg(test)]
mod machine;
mod parse;
mod stalls;
mod system;

#[cfg(any(test, feature = "testing"))]
pub use fake::FakePressure;
pub use left::{Left, MemoryLeft, memory_left};
pub use level::{Level, Pressure};
pub use stalls::OwnStalls;
pub use system::{SystemPressure, cgroups};
