//! fit: objects of any length, each where it fits best, in segments of sixteen pages.
//!
//! zfold's own allocator; the kernel has none like it. It is made for density: nothing is rounded
//! but to a 512th of a page, holes are found by length over the whole pool, and compaction leaves
//! hardly any. Where zsmalloc keeps objects of one size together, here neighbouring objects are
//! unrelated.
//!
//! ```text
//!   segment:    | header object | header object |  hole  | header object | ...   16 pages
//!   directory:    0, used         311, used       702, free  790, used          2 bytes each
//! ```
//!
//! From the bottom up:
//! - `place`: segments, granules, what a cell says
//! - `directory`: how a segment is cut into extents
//! - `holes`: which segment has a hole of which length
//! - `heap`: the single-threaded core: taking, giving, evacuating
//! - `shard`: the lock and the cells around it; `owned`: objects without a cell; `compact`:
//!   evacuation under these
//! - `pool`: which shard a call goes to; `crowd`: the hints that this follows
//!
//! Metadata: a header of 4 bytes an object, a cell of 16 unless it has an owner, about 2.5 bytes an
//! extent, 80 bytes a segment.

pub(crate) mod compact;
pub(crate) mod crowd;
pub(crate) mod directory;
pub(crate) mod heap;
pub(crate) mod holes;
pub(crate) mod owned;
pub(crate) mod place;
pub(crate) mod pool;
pub(crate) mod shard;

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

pub(crate) use crowd::SHARDS_MAX;
pub use pool::Fit;
pub(crate) use shard::cells_range_bytes;
