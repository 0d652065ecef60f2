//! What zfold's programs have in common at the command line: how they end, what they write and how.
//!
//! [`exit`] has failures and all output, [`clean`] makes text harmless to a terminal, [`mod@file`]
//! writes results whole or not at all, [`progress`] says that work goes on, [`terminal`] how wide
//! lines may be, and [`program`] where the other programs are.

#![forbid(unsafe_code)]

pub mod clean;
pub mod exit;
pub mod file;
pub mod format;
pub mod program;
pub mod progress;
pub mod terminal;
