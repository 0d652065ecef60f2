//! How short of memory the machine and the own cgroup are: what tells a store to shrink.
//!
//! | source | calm | urgent |
//! |:--|:--|:--|
//! | stalls: time since the last look in which a task waited for memory | up to 5 % | from 50 % |
//! | memory that can be had without swapping, of all | from 10 % | up to 2 % |
//! | what is left below the limit of a cgroup, of the limit | from 10 % | up to 2 % |
//!
//! Stalls ([`OwnStalls`]) are those of the own cgroup (`memory.pressure`), or of the machine
//! (`/proc/pressure/memory`); what is left ([`MemoryLeft`]) is what `/proc/meminfo` says, and the
//! limits of the own cgroup and of all above it (`memory.max`, or `memory.limit_in_bytes` in
//! version 1). Between calm and urgent, a measure goes from 0 to 1 in proportion; in
//! [`SystemPressure`] the tightest source counts. Stalls are the better measure, being what
//! shrinking is to prevent, but not every kernel counts them, a cgroup of version 1 never does, and
//! they come when memory is gone already.
//!
//! Sources: the kernel's documentation of pressure stall information
//! (`Documentation/accounting/psi.rst`), of `/proc/meminfo` (`filesystems/proc.rst`) and of the
//! memory controllers (`admin-guide/cgroup-v1/memory.rst`, `admin-guide/cgroup-v2.rst`).

mod cgroup;
mod left;
#[cfg(test)]
pub(crate) mod machine;
mod parse;
mod stalls;
mod system;

pub use cgroup::cgroups;
pub use left::{Left, MemoryLeft, memory_left};
pub use stalls::OwnStalls;
pub use system::SystemPressure;
