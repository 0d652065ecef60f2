//! Real work on a served device: file systems, the clients that people use, and ends in the middle
//! of it.
//!
//! File systems need root, loop devices and `/dev/fuse`; all tests need programs. What is missing
//! is told in a line that begins with `SKIPPED:`. `ZFOLD_SYSTEM_SECONDS` says how long each part
//! that has no end of its own runs.

#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code, reason = "shared with the tests of `disk`")]
#[path = "../disk/server.rs"]
mod server;

mod clients;
mod crashes;
mod file_systems;
mod looped;
mod tools;
