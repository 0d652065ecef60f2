//! `run`: a program and its children whose anonymous memory is kept under a limit.
//!
//! The manager, a process of its own, starts the program and traces it. It learns of every change
//! of an address space before and after it happens ([`memory::Memory`]), is told of missing pages
//! by userfaultfd, and has a helper in each large address space: a process that shares its memory
//! and makes system calls there on demand. Nothing of zfold runs inside the program's threads.

#![allow(dead_code, reason = "its caller, the tracer, comes with another change")]

mod access;
mod budget;
mod chance;
mod changes;
mod engine;
mod faults;
mod keys;
mod managed;
mod maps;
pub(crate) mod memory;
#[cfg(test)]
mod model;
mod mover;
mod pages;
mod ranges;
mod reclaim;
mod shared;
mod space;
mod stats;
mod streams;

pub use stats::{Latency, Stats};

#[cfg(test)]
mod tests;
