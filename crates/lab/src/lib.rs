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
//! An [`Experiment`] measures lock designs, devices or processes under load; `scale` carries that
//! to machines with more cores by simulation. Inputs and the counting of times are those of
//! [`zfold_compare`]. This crate prints nothing: it returns records and texts.

#![forbid(unsafe_code)]

pub mod experiment;
pub mod pageout;

mod allocators;
mod build;
mod catalogue;
mod compaction;
mod free;
mod lock_stat;
mod per_cpu_lists;
mod pool_lock;
mod scale;
mod writeback;

pub use catalogue::Experiment;
