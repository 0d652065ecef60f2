//! Control sockets: of servers of disks and of runs, which only their owner can reach.

pub(crate) mod client;
pub(crate) mod metrics;
mod places;
pub(crate) mod protocol;
pub(crate) mod runtime;
pub(crate) mod service;
pub(crate) mod state;
