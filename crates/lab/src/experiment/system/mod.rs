//! What experiments use of the system beside this process: other programs, zram devices, swap and
//! memory cgroups. Each is set up by a guard, and gone with it; what would stay behind if this
//! process were killed is undone by [`cleanup`].

pub(super) mod again;
pub(super) mod cgroup;
pub(super) mod child;
pub(super) mod cleanup;
pub(super) mod swap;
pub(super) mod zfold_run;
pub(super) mod zram;
