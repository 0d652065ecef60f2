//! Real pages in every zfold pool and codec, every byte compared: for people who want to know what
//! compressing their memory would save.
//!
//! ```
//! use zfold_compare::input::PageSet;
//!
//! for capture in PageSet::builtin(4096) {
//!     println!("{}: {} pages of a program's memory", capture.name(), capture.len());
//! }
//! ```
//!
//! [`input`] says what is stored, [`compare`] stores it in every allocator and codec and reports
//! what that took. This crate prints nothing: it returns records and texts. Other crates that
//! measure use what it measures and writes with, too: [`latency`], [`proc`], [`rng`], [`text`],
//! [`trace`].

#![forbid(unsafe_code)]

pub mod compare;
pub mod input;
pub mod latency;
pub mod proc;
pub mod rng;
pub mod text;
pub mod trace;
