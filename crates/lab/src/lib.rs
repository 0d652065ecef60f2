//! Experiments on zfold pools and stores, for people who measure allocators or compressed memory.
//!
//! ```
//! use zfold_lab::Experiment;
//!
//! for experiment in Experiment::ALL {
//!     println!("{experiment}: {}", experiment.question);
//! }
//! ```
//!
//! An [`Experiment`] measures lock designs, devices or processes under load, and [`simulate`]
//! carries that to machines with more cores. Its inputs and its counting of times are those of
//! [`zfold_compare`]. This crate prints nothing: it returns records and texts.

#![forbid(unsafe_code)]

pub mod allocators;
pub mod build;
pub mod compaction;
pub mod experiment;
pub mod free;
pub mod lock_stat;
pub mod pageout;
mod per_cpu_lists;
pub mod pool_lock;
pub mod scale;
pub mod simulate;
pub mod writeback;

mod catalogue;

pub use catalogue::Experiment;
