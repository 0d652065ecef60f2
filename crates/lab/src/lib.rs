//! Workloads, replay and experiments on zfold pools and stores, for people who measure allocators
//! or compressed memory.
//!
//! ```
//! use zfold_lab::trace::Trace;
//!
//! let trace = Trace::builtin();
//! println!("{}: {} events of a recorded run of zswap", trace.name(), trace.events().len());
//! assert!(trace.events().len() > 100_000);
//! ```
//!
//! [`input`] and [`trace`] say what is stored, [`compare`] stores it in every allocator and codec
//! and reports what that took, an [`Experiment`] measures lock designs, devices or processes under
//! load, and [`simulate`] carries that to machines with more cores. This crate prints nothing: it
//! returns records and texts.

#![forbid(unsafe_code)]

pub mod allocators;
pub mod build;
pub mod calls;
pub mod compaction;
pub mod compare;
pub mod density;
pub mod disk;
pub mod experiment;
pub mod free;
pub mod input;
pub mod latency;
pub mod limits;
pub mod lock_stat;
pub mod pageout;
pub mod per_cpu_lists;
pub mod pool_lock;
pub mod proc;
pub mod rng;
pub mod scale;
pub mod simulate;
pub mod trace;
pub mod writeback;

mod catalogue;
mod text;

pub use catalogue::{Experiment, UnknownExperiment};
