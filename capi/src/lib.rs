//! The C interface: stores, pools, caches and regions behind opaque pointers.
//!
//! - C1: no panic crosses; a call that panics returns `ZFOLD_PANIC`.
//! - C2: every call that can fail returns a code, and leaves a text for `zfold_error` of its
//!   thread.
//! - C3: a structure begins with its size as the caller knows it; nothing behind that is written.
//! - C4: objects that a call makes are in a [`Local`]: in a forked child each call returns
//!   `ZFOLD_FORKED` before it takes a lock, and closing an object there leaves it as it is.
//!
//! `include/zfold.h` is the interface as programs see it, with its documentation.
//!
//! [`Local`]: ::zfold_pool::process::Local

#![allow(missing_docs, reason = "the header documents what programs see")]
#![allow(unreachable_pub, reason = "C programs reach it")]

mod cache;
mod error;
mod pool;
mod region;
mod store;
mod text;
