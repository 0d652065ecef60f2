//! Real pages and recorded loads in every zfold pool and codec, every byte compared: for people who
//! want to know what compressing their memory would save.
//!
//! ```
//! use zfold_compare::trace::Trace;
//!
//! let trace = Trace::builtin();
//! println!("{}: {} events of a recorded run of zswap", trace.name(), trace.events().len());
//! assert!(trace.events().len() > 100_000);
//! ```
//!
//! [`input`] and [`trace`] say what is stored, [`compare`] stores it in every allocator and codec
//! and reports what that took. This crate prints nothing: it returns records and texts. Other
//! crates that measure use its means to measure and write, too: [`latency`], [`proc`], [`rng`],
//! [`text`].

#![forbid(unsafe_code)]

pub mod compare;
pub mod input;
pub mod latency;
pub mod proc;
pub mod rng;
pub mod text;
pub mod trace;
