//! Real engines: what keeps objects by number on other machines.

#[cfg(feature = "redis")]
pub(crate) mod redis;
