//! Synchronisation: locks with an order and statistics, threads of a pool's own, and their
//! primitives. Knows nothing of pools.

pub(crate) mod backoff;
pub(crate) mod cpu;
pub(crate) mod gate;
mod loom;
pub(crate) mod order;
pub(crate) mod plain;
pub(crate) mod rw;
pub(crate) mod spin;
pub(crate) mod stat;
pub(crate) mod worker;

pub(crate) use self::loom::{UnsafeCell, atomic, yield_now};
