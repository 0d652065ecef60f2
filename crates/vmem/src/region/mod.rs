//! `Region`: memory for programs that ask for it.
//!
//! Page states are in `word`, which has the table of them.

#[cfg(not(loom))]
mod core;
#[cfg(not(loom))]
mod evict;
#[cfg(not(loom))]
mod fault;
#[cfg(not(loom))]
mod frames;
#[cfg(not(loom))]
mod keys;
#[cfg(not(loom))]
mod memory;
#[cfg(not(loom))]
mod options;
#[cfg(not(loom))]
#[expect(clippy::module_inception, reason = "the type of that name is there")]
mod region;
#[cfg(not(loom))]
mod registry;
#[cfg(not(loom))]
mod ring;
#[cfg(not(loom))]
mod room;
#[cfg(not(loom))]
mod space;
#[cfg(not(loom))]
mod stats;
#[cfg(not(loom))]
mod wait;
mod word;
#[cfg(not(loom))]
mod workers;

#[cfg(all(test, loom))]
mod models;

#[cfg(not(loom))]
pub use self::{
    memory::Memory,
    options::{FaultMode, MemoryOptions, RegionError},
    region::{Pin, Region},
    stats::{Latency, MemoryStats},
};
