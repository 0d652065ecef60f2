//! Pages on other machines: a backing for zfold stores over engines that keep objects.

#![forbid(unsafe_code)]

mod backing;
mod bell;
mod cleaner;
mod engine;
#[cfg(feature = "redis")]
mod engines;
mod far;
mod link;
mod log;
mod map;
mod options;
pub mod place;
mod seal;
#[cfg(test)]
mod simulation;
mod stats;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod twin;

pub use backing::FarBacking;
pub use engine::{Engine, EngineError};
pub use options::FarOptions;
pub use stats::FarStats;
