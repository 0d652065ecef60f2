//! `zfold disk`, `zfold ctl` and `zfold stat` from outside: served, asked, ended and killed.

#[path = "../common/mod.rs"]
mod common;
#[cfg(feature = "s3")]
#[path = "../../../far/tests/s3/server.rs"]
mod s3_server;

mod config;
mod control;
mod lifetime;
mod nbd;
mod refused;
#[cfg(feature = "s3")]
mod s3;
mod secrets;
mod server;
