//! System calls about other processes, each with its contract.

pub(crate) mod arch;
pub(crate) mod inherited;
pub(crate) mod malloc;
pub(crate) mod pids;
pub(crate) mod proc;
pub(crate) mod process;
pub(crate) mod procmap;
pub(crate) mod ptrace;
pub(crate) mod remote;
pub(crate) mod seccomp;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod ticks;
pub(crate) mod urgency;
