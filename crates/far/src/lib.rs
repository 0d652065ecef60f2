//! Pages on other machines: a backing for zfold stores over engines that keep objects.

#![forbid(unsafe_code)]

mod engine;
#[cfg(feature = "redis")]
mod engines;
pub mod place;

pub use engine::{Engine, EngineError};
