//! What zfold's programs have in common at the command line: how they end, what they write and how.
//!
//! [`exit`] has failures and all output, [`clean`] makes text harmless to a terminal, [`file`]
//! writes results whole or not at all, [`progress`] says that work goes on, and [`terminal`] how
//! wide lines may be.

#![forbid(unsafe_code)]

pub mod clean;
pub mod exit;
pub mod file;
pub mod progress;
pub mod terminal;
