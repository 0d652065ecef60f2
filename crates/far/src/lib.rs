//! Pages on other machines: a backing for zfold stores over engines that keep objects.

#![forbid(unsafe_code)]

mod engine;

pub use engine::{Engine, EngineError};
