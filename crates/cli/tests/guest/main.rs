//! `zfold guest`: images by command, and guests restored from them.
//!
//! What is missing for a test is told in a line that begins with `SKIPPED:`.

#[path = "../common/mod.rs"]
mod common;
mod faults;
#[path = "../common/faulty.rs"]
mod faulty;
mod images;
mod machines;
mod real;
mod restored;
mod server;
mod survival;
