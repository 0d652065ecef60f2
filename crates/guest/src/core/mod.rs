//! The decisions about one guest, on plain data: no system call, no thread, no clock.

mod ahead;
pub(crate) mod fault;
pub(crate) mod guest;
pub(crate) mod regions;
#[cfg(test)]
mod simulation;
pub(crate) mod space;
pub(crate) mod table;
