//! Workloads, replay and experiments on zfold pools and stores, for people who measure allocators
//! or compressed memory.
//!
//! ```
//! use zfold_lab::trace::Trace;
//!
//! let trace = Trace::builtin();
//! println!("{}: {} events of a recorded run of zswap", trace.name, trace.events.len());
//! assert!(trace.events.len() > 100_000);
//! ```
//!
//! [`input`] and [`trace`] say what is stored, [`compare`] stores it in every allocator and codec
//! and reports what that took, [`experiment`] compares lock designs under load, and [`simulate`]
//! carries that to machines with more cores. This crate prints nothing: it returns records and
//! texts.

#![forbid(unsafe_code)]

pub mod compare;
pub mod experiment;
pub mod input;
pub mod latency;
pub mod resident;
pub mod rng;
pub mod simulate;
pub mod trace;

mod text;
