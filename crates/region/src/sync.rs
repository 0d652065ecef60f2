//! The atomics of lock-free code: from the standard library, or loom's models of them when the
//! crate is built with `--cfg loom`.

#[cfg(loom)]
pub(crate) use loom::sync::atomic;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic;
