//! The primitives of lock-free code: the standard library, or loom's models of it when the crate is
//! built with `--cfg loom`.

#[cfg(loom)]
pub(crate) use loom::{sync::atomic, thread::yield_now};
#[cfg(not(loom))]
pub(crate) use std::{sync::atomic, thread::yield_now};

/// Times that a waiting thread looks before it yields its processor.
pub(crate) const SPINS: u32 = if cfg!(loom) { 0 } else { 100 };
