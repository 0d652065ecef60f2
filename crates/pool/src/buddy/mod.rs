//! zbud and z3fold: a few objects ("buddies") in a page. Single-threaded cores, and the locks
//! around them.

mod chunks;
pub(crate) mod core;
pub(crate) mod locking;
mod pins;
pub(crate) mod z3fold;
pub(crate) mod zbud;
