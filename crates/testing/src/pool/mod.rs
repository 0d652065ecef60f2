//! The contract of [`Pool`](zfold_pool::Pool) as checks that every pool must pass, a model that any
//! sequence of operations can be held against, and memory that fails or says what happens to it.
//!
//! The model is a list of (handle, bytes); it is slow and obviously right. Tests, property tests
//! and fuzz targets all drive pools through it, and so can the author of another lock design or
//! page source. The unit tests of `zfold-pool` compile these files once more, for their own types.
//!
//! # Examples
//! ```
//! use zfold_pool::{Allocator, PoolOptions};
//! use zfold_testing::pool::{Model, Op};
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
mod pages;

pub use checks::{CHECKS, Check};
pub use model::{Model, Op};
pub use pages::{FailingPages, HeapPages, HookedPages};
