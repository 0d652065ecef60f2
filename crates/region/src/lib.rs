//! Memory of which only a part is resident and the rest is compressed, for programs whose data is
//! larger than memory.
//!
//! ```
//! use zfold_region::{MemoryOptions, Region};
//!
//! // 16 MiB of numbers, of which 1 MiB is resident.
//! let mut region = Region::new(16 << 20, &MemoryOptions::new(1 << 20))?;
//! let numbers = region.as_mut_slice::<f64>();
//! numbers.iter_mut().zip(0..).for_each(|(number, n)| *number = f64::from(n));
//! assert_eq!(numbers[1_000_000], 1_000_000.0);
//! assert!(region.stats().stored_pages > 3000);
//! # Ok::<(), zfold_region::RegionError>(())
//! ```
//!
//! A [`Region`] is a range of addresses, of which a [`Memory`] keeps at most a limited number of
//! bytes uncompressed. Missing pages raise `SIGBUS` in the thread that touches them (userfaultfd
//! with `UFFD_FEATURE_SIGBUS`, which every process may have), and a handler brings them in, in that
//! thread: no other thread has to wake up.
//!
//! ```text
//!            touch: copy                          touch: decompress
//!        +----------------+                +-----------------------------+
//!        v                |                |                             |
//!   in its place --move--> staging area --compress--> store  --(dropped when touched)
//!        ^       many at                    background
//!        |       a time                     threads
//!     first touch: zeros
//! ```
//!
//! - M1: at most as many pages as the limit allows are uncompressed (room/L1): in their place, on
//!   their way, and in the staging area. A thread that needs room waits for background threads.
//! - M2: a page is in exactly one of: nowhere, its place, a slot of the staging area, the store.
//!   One word says where, and one thread at a time changes that (word/W1 to W6, modelled). In
//!   addition, the store may have a copy with old contents of a page. It is never read; when the
//!   page leaves, the copy becomes the page if both are equal (word/W2, W4, W5).
//! - M3: pages leave by `UFFDIO_MOVE`, which takes the page itself: a write of another thread is in
//!   it or waits until it is back. The kernel refuses pages that a device uses, and these stay.
//!   A page that did not change last time comes back protected from writes (`UFFDIO_COPY_MODE_WP`),
//!   and is dropped when it leaves before a write: then its copy is the page (word/W5). The kernel
//!   is asked about the protection each time (leave/L1).
//! - M4: the path of a fault allocates nothing, takes no lock of the standard library, and fits on
//!   a small stack (sigbus/H1 to H3). It waits only for threads that never touch a region, which
//!   evict, and for threads on this same path.
//! - M5: failures are not hidden: bytes that do not decode, a store that refuses pages while room
//!   is needed, and a mapping that was changed by others end the process with a line on stderr.
//! - M6: a thread that holds a lock of this module, or is in charge of a page, has its signals
//!   blocked: so a handler that touches a region never waits for the thread that it interrupts.
//!   Calls on many pages let signals through at intervals.
//!
//! Locks, none of them taken on the path of a fault: the hand of the mover, then the list of
//! regions, then the batches of the ring. The store's are below all of them.
//!
//! # What programs must know
//! - System calls and futexes on missing pages fail with `EFAULT`, and so do those that write to a
//!   page that was only read so far: [`pin`](Region::pin) the pages first, or choose
//!   [`FaultMode::Thread`]. Do not build a general allocator on a region.
//! - A forked child does not have the regions: a touch there raises `SIGSEGV`. It may drop its
//!   values of these types; other calls may wait for ever, unless [`zfold_pool::process::Local`]
//!   refuses.
//! - Threads that touch a region must not block `SIGBUS`; a program must install its own handler
//!   for it before it makes the first region; that handler is called for all other faults.
//! - Use [`discard`](Region::discard) in place of `madvise`. Do not `munmap` or `mremap` a part.

#![cfg(target_os = "linux")]

#[cfg(not(loom))]
mod ahead;
#[cfg(not(loom))]
mod core;
#[cfg(not(loom))]
mod evict;
#[cfg(not(loom))]
mod fault;
#[cfg(not(loom))]
mod frames;
#[cfg(not(loom))]
mod heap;
#[cfg(not(loom))]
mod keys;
#[cfg(not(loom))]
mod leave;
#[cfg(not(loom))]
mod memory;
#[cfg(not(loom))]
mod options;
#[cfg(not(loom))]
mod region;
#[cfg(not(loom))]
mod registry;
#[cfg(not(loom))]
mod ring;
#[cfg(not(loom))]
mod room;
#[cfg(not(loom))]
mod space;
#[cfg(not(loom))]
mod stats;
mod streams;
mod sync;
#[cfg(not(loom))]
mod sys;
#[cfg(not(loom))]
mod wait;
mod word;
#[cfg(not(loom))]
mod workers;

#[cfg(all(test, loom))]
mod models;

#[cfg(not(loom))]
pub use self::{
    heap::{Block, Heap, HeapPin, HeapStats},
    memory::Memory,
    options::{FaultMode, MemoryOptions, RegionError},
    region::{Pin, Region},
    stats::MemoryStats,
};
