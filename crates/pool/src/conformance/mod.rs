//! The contract of [`Pool`] as checks that every pool must pass, and a model that any sequence of
//! operations can be held against.
//!
//! The model is a list of (handle, bytes); it is slow and obviously right. Tests, property tests
//! and fuzz targets all drive pools through it, and so can the author of another lock design or
//! page source.
//!
//! # Examples
//! ```
//! use zfold_pool::conformance::{Model, Op};
//! use zfold_pool::{Allocator, PoolOptions};
//!
//! let pool = zfold_pool::create("checked", &PoolOptions::new(Allocator::Z3fold))?;
//! let mut model = Model::new(&*pool);
//! for op in Op::random(1, pool.len_max()).take(1000) {
//!     model.apply(&op);
//! }
//! model.finish();
//! # Ok::<(), zfold_pool::ConfigError>(())
//! ```

mod checks;
mod forge;
mod handles;
mod model;

pub use checks::{CHECKS, Check};
pub use model::{Model, Op};
