//! Real programs under `zfold run`: their output and exit status are the same as without it, and
//! an observer outside sees the limit kept.
//!
//! Each program runs alone first; a quarter of what was resident then, or half, is its limit. With
//! `ZFOLD_LONG=1` there are more programs, and they do more, under both, and one after the other,
//! so that the times that are printed mean something. What is missing for a test is told in a line
//! that begins with `SKIPPED:`.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/granted.rs"]
mod granted;

mod compilers;
mod databases;
mod interpreters;
mod job;
mod needs;
mod observer;
mod small;
mod sources;
mod stays;
mod stressors;
