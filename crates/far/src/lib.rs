//! Pages on other machines: a backing for zfold stores over engines that keep objects.

#![forbid(unsafe_code)]

mod backing;
mod bell;
mod cleaner;
mod engine;
mod far;
mod link;
mod log;
mod map;
mod options;
mod seal;
mod stats;

pub use backing::FarBacking;
pub use engine::{Engine, EngineError};
pub use options::FarOptions;
pub use stats::FarStats;
