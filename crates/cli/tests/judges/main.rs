//! `zfold run` as strangers judge it: programs that are right alone must be right in a run, and
//! programs that attack a run must fail.
//!
//! The programs are small ones in C, in the folder beside this. Each has a time limit, but no time
//! decides anything: what hangs fails. With `ZFOLD_LONG=1` it is also judged what crowds and a wait
//! cost. `ZFOLD_PROGRAM` names another zfold than that of this build.

#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code, reason = "shared with the tests of real programs")]
#[path = "../programs/needs.rs"]
mod needs;

mod attacks;
mod cases;
mod crowds;
mod front;
mod limits;
mod trial;
