//! zsmalloc: objects of one size class packed into zspages, runs of pages that objects may
//! straddle; compaction moves objects under their handles.
//!
//! Geometry, fullness groups and both compaction algorithms are those of Linux's zsmalloc (see
//! the modules); the density is the kernel's on the same data.
//!
//! From the bottom up:
//! - `geometry`: size classes
//! - `fullness`: groups of zspages by how full they are
//! - `zspage`: objects and the free list inside a zspage
//! - `cell`: the word behind a handle, which is also the object's lock
//! - `tables`: cells, records and the depot, which all heaps share
//! - `class`, `heap`: the single-threaded core: zspages in lists, taking and giving objects
//! - `remote_free`: freed objects on their way to the heap that owns them
//! - `compact`: moving objects of a class together, in steps
//! - `locking`: lock designs: which heaps there are and what a call locks
//! - `pool`: the pool, which is the same for all designs; `sweep`: its compaction; `check`: its
//!   invariants
//!
//! Metadata: a cell of 16 bytes and a header of 8 an object, a record of 32 a zspage.

pub(crate) mod cell;
mod check;
mod class;
mod compact;
mod fullness;
pub(crate) mod geometry;
mod heap;
pub(crate) mod locking;
pub(crate) mod pool;
mod remote_free;
mod sweep;
pub(crate) mod tables;
mod zspage;
