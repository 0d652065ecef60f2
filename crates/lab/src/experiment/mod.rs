//! The building blocks of experiments. Each is a module at the root of this crate: it repeats, in
//! one run on one machine, what one of the documents did that zfold comes from, and puts its
//! published figures beside. Two drive other programs: `pageout` and `build` compare programs whose
//! memory lies compressed.
//!
//! An experiment returns an [`Outcome`]: figures, histograms and remarks; a [`report`] is made of
//! these and of the [`machine`]. Base and variant alternate within every repeat, and each run
//! verifies what it stored: a wrong byte ends the experiment with an error.

pub mod machine;
pub mod report;

pub(crate) mod content;
pub(crate) mod error;
pub(crate) mod harness;
pub(crate) mod outcome;
pub(crate) mod system;

pub use error::Error;
pub use outcome::{Figure, Outcome, Progress, Settings};
