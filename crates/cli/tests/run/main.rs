//! `zfold run` from outside: what the program gets, what signals do, how it ends.

#[path = "../common/mod.rs"]
mod common;
#[cfg(target_arch = "x86_64")]
#[path = "../common/granted.rs"]
mod granted;

mod denied;
mod ends;
mod inherited;
#[cfg(target_arch = "x86_64")]
mod paused;
mod refused;
mod report;
mod runs;
#[cfg(feature = "s3")]
mod s3;
#[cfg(target_arch = "x86_64")]
mod sandboxes;
#[cfg(target_arch = "x86_64")]
mod secrets;
#[cfg(target_arch = "x86_64")]
mod servers;
mod signals;
mod status;
#[cfg(target_arch = "x86_64")]
mod steered;
mod terminal;
#[cfg(target_arch = "x86_64")]
mod unmanaged;
