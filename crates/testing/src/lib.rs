//! Helpers that the tests of zfold's crates share. Nothing depends on it but tests.
//!
//! | module | contents |
//! |:--|:--|
//! | [`random`] | numbers and bytes that a seed names |
//! | [`wait`] | waiting for what another thread or process does |
//! | [`mod@skip`] | what a test needs, and the line that says what is missing |
//! | [`compiled`] | C programs, compiled when the test runs |
//! | [`executable`] | programs that a test puts somewhere and then runs |
//! | [`machines`] | cloud-hypervisor's side of a local migration, without a machine |
//! | [`groups`] | control groups with a limit of memory |
//! | [`output`] | how a program must end |
//! | [`net`] | servers of a test's own on loopback |
//! | [`process`] | processes that end with a test |
//! | [`nbd`] | a client and a server of NBD |
//! | [`pool`] | what every pool must do, and memory for pools that fails |
//! | [`redis`], [`s3`] | real servers on loopback |
//!
//! It knows no crate of zfold but the numbers of NBD and, for [`pool`], the pools, so that tests
//! inside of any other crate can use it, too.

#![deny(unsafe_code)]
#![allow(missing_docs, missing_debug_implementations, reason = "its users are tests")]

pub mod compiled;
pub mod executable;
pub mod groups;
pub mod machines;
pub mod nbd;
pub mod net;
pub mod output;
pub mod pool;
pub mod process;
pub mod random;
pub mod redis;
pub mod s3;
pub mod skip;
pub mod wait;

pub use random::Random;
pub use skip::skip;
pub use wait::{wait_for, wait_until};
