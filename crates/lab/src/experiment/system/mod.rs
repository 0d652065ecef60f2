//! The parts of the system that experiments use beside this process: other programs, swap to zram
//! and memory cgroups. Each is set up by a guard, and gone with it; what would stay behind if this
//! process were killed is undone by [`cleanup`].

pub(crate) mod cgroup;
pub(crate) mod child;
pub(crate) mod cleanup;
pub(crate) mod zram;
