//! Cold pages on other machines, from outside: real servers of Redis on loopback that stop, end,
//! forget, and encrypt.
//!
//! What is missing for a test is told in a line that begins with `SKIPPED:`. With `ZFOLD_LONG=1`
//! the disk over a cluster is larger, and what happens to its masters takes longer.

#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code, reason = "shared with the tests of `run`")]
#[path = "../run/runs.rs"]
mod runs;
#[allow(dead_code, reason = "shared with the tests of `disk`")]
#[path = "../disk/server.rs"]
mod server;
#[allow(dead_code, reason = "shared with the tests of `block_fs`")]
#[path = "../block_fs/tools.rs"]
mod tools;

mod cluster;
mod nbd_export;
mod paced;
mod run;
mod sort;
mod tls;
mod told;
