//! Lock designs of zbud and z3fold: one lock around a core, or for every CPU a core and a lock.

pub(crate) mod per_cpu;
pub(crate) mod pool_lock;
