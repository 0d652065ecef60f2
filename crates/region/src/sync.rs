//! What lock-free code synchronises with: the standard library, or loom's models of it when the
//! crate is built with `--cfg loom`.

#[cfg(loom)]
pub(crate) use loom::sync::atomic;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic;
