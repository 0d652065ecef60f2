//! The memory side of the manager: what is closed, answers faults, moves pages out and brings
//! them back, and keeps the whole under its limit.

mod access;
mod again;
mod asked;
mod budget;
mod close;
mod discards;
mod ends;
pub(crate) mod engine;
mod faults;
mod fixed;
mod keys;
mod kinds;
mod looks;
mod managed;
mod maps;
mod messages;
mod mover;
mod polls;
mod readers;
mod reclaim;
mod refusals;
mod requests;
mod retire;
mod shared;
mod signal;
mod staging;
mod stats;
mod stayed;
mod strangers;
mod swap_cache;
#[cfg(test)]
mod tests;
mod watch;
