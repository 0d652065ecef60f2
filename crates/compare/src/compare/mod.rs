//! zbud, z3fold and zsmalloc side by side on the same pages.
//!
//! After the comparison of the three in zswap on the linux-mm list (February 2024): the pool's
//! largest size and the times of stores and loads, here without a machine to boot and with the
//! contents verified. For each input, codec and allocator:
//!
//! ```text
//! store all -> filled point: sizes, resident memory
//! load all and compare -> free a random half -> compact -> store that half again
//! load all and compare -> free all -> the pool holds no page; resident memory
//! ```
//!
//! Several inputs also run together in one pool, as an input of its own named `all`: in a pool of
//! its own, a small input leaves a larger share of its pages partly empty.
//!
//! The random order of events is the same for every allocator and codec; a seed names it. It is
//! that of the runs in a real kernel that the pool sizes were checked against, and described in
//! `docs/records/fidelity.md`. Times are of single calls and leave out the comparison of bytes.
//! Everything the measurement itself needs is allocated and touched before the resident memory is
//! first read, and a few pages go ahead of the fill and out again, so that code and codec contexts
//! count for no pool.

mod churn;
mod error;
mod meter;
mod order;
mod plan;
mod record;
pub mod report;
mod run;
#[cfg(test)]
mod tests;

pub use error::{Fault, RunError};
pub use meter::{Progress, Step};
pub use plan::{Plan, Preset};
pub use record::{Record, Sizes};
pub use run::run;
pub use zfold_pool::{Allocator, PageSize};
pub use zfold_store::CodecSpec;
