//! The parts of the system that experiments use beside this process: other programs, zram devices,
//! swap and memory cgroups. Each is set up by a guard, and gone with it; what would stay behind if
//! this process were killed is undone by [`cleanup`].

pub(crate) mod again;
pub(crate) mod cgroup;
pub(crate) mod child;
pub(crate) mod cleanup;
pub(crate) mod scratch;
pub(crate) mod swap;
pub(crate) mod tree;
pub(crate) mod zfold_run;
pub(crate) mod zram;
