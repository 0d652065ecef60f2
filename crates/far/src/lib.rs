//! Pages on other machines: a backing for zfold stores over engines that keep objects.
//!
//! A [`FarBacking`] packs the units that a store writes into sealed objects, gives them to an
//! [`Engine`], and remembers which unit lies where. Its cleaner deletes objects without live units
//! and rewrites those with few. Everything that leaves the process is encrypted and authenticated;
//! everything that comes back is checked. [`FarStats`] has its statistics. The design, with its
//! invariants and costs, is in `docs/design/far.md` of the repository.
//!
//! Beside pages, an [`Object`] is one stream of bytes in S3, such as a snapshot: sent in parts, and
//! complete or not there.
//!
//! # Features
//! `redis` and `nbd`, on by default, are for servers of Redis, or what speaks like it, and for
//! exports of NBD servers; `s3` is for objects in S3 and what speaks like it. `seal` is for an
//! engine of your own alone: without it and those two, no backing can be opened. `testing` has what
//! tests of engines and of backings need.

#![forbid(unsafe_code)]

mod backing;
mod bell;
mod cleaner;
mod engine;
mod engines;
mod far;
mod link;
mod log;
mod map;
mod object;
mod objects;
mod options;
pub mod place;
#[cfg(feature = "s3")]
mod s3;
#[cfg_attr(not(feature = "seal"), path = "seal_off.rs")]
mod seal;
#[cfg(test)]
mod simulation;
mod stats;
#[cfg(any(test, feature = "testing"))]
#[path = "../tests/testing/mod.rs"]
pub mod testing;
mod twin;

pub use backing::FarBacking;
pub use engine::{Engine, EngineError};
pub use engines::connect;
pub use object::{Object, ObjectWrite};
pub use objects::object;
pub use options::FarOptions;
pub use stats::{FarStats, TABLE};

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
