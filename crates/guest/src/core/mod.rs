//! The decisions about one guest, on plain data: no system call, no thread, no clock.

mod ahead;
mod evict;
#[cfg(test)]
mod evict_kernel;
#[cfg(test)]
mod evict_simulation;
pub(crate) mod fault;
pub(crate) mod guest;
pub(crate) mod hand_over;
pub(crate) mod leaving;
pub(crate) mod message;
pub(crate) mod regions;
#[cfg(test)]
mod simulation;
pub(crate) mod space;
#[cfg(test)]
mod succession;
pub(crate) mod table;
