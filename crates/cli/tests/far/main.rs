//! Cold pages on other machines, from outside: real servers of Redis on loopback that stop, end,
//! forget, and encrypt.
//!
//! What is missing for a test is told in a line that begins with `SKIPPED:`.

#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code, reason = "shared with the tests of `run`")]
#[path = "../run/runs.rs"]
mod runs;
#[allow(dead_code, reason = "shared with the tests of `disk`")]
#[path = "../disk/server.rs"]
mod server;

mod nbd_export;
mod run;
mod tls;
mod told;
