//! `zfold disk`, `zfold ctl` and `zfold stat` from outside: served, asked, ended and killed.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/faulty.rs"]
mod faulty;

mod control;
mod faults;
mod lifetime;
mod refused;
mod s3;
mod secrets;
mod server;
