//! `zfold run` from outside: what the program gets, what signals do, how it ends.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/faulty.rs"]
mod faulty;
#[path = "../common/granted.rs"]
mod granted;

mod denied;
mod ends;
mod faults;
mod forks;
mod groups;
mod inherited;
mod own;
mod refused;
mod report;
mod runs;
mod sandboxes;
mod secrets;
mod signals;
mod status;
mod steered;
mod terminal;
mod unmanaged;
