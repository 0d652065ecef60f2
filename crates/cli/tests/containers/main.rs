//! `zfold run` and `zfold check` in containers of a real runtime, with the filter of system calls
//! and the rights that containers have by default, and with what `zfold check` says to add.

#[path = "../common/mod.rs"]
mod common;

mod bundle;
mod cases;
