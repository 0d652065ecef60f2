//! The options of a memory, and its errors.

use std::io;

use zfold_pool::builders;
use zfold_store::{BackingOptions, CodecChoice, CodecKind, OpenError};

use zfold_uffd::page::page_len;

/// The smallest limit, in pages.
pub(super) const LIMIT_PAGES_MIN: usize = 64;

/// Who resolves a touch of a missing page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultMode {
    /// The thread that touches it, inside a handler of `SIGBUS`. Needs no privilege. System calls
    /// on memory with missing pages fail with `EFAULT`, and so may those that write to pages that
    /// were only read so far; pin it first ([`Region::pin`](super::Region::pin)).
    #[default]
    InThread,
    /// Threads of the memory, one for each CPU, at most four. System calls work on any page. Needs
    /// the right to handle faults of the kernel: root, access to `/dev/userfaultfd`, or the sysctl
    /// `vm.unprivileged_userfaultfd`. A fault takes two more context switches.
    Thread,
}

/// The options of a [`Memory`](super::Memory): public fields with defaults. Start from
/// [`MemoryOptions::new`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MemoryOptions {
    /// Most bytes of all regions that may be uncompressed in memory; at least 64 pages, which is
    /// 256 KiB where they have 4 KiB.
    pub resident_limit: usize,
    /// Most bytes of address space of all regions. Costs 6 bytes of address space for each KiB,
    /// and memory only for pages that were touched.
    pub capacity: usize,
    /// The codec, and the dictionary that it works with.
    pub codec: CodecChoice,
    /// Most bytes that compressed pages may take. `None`: no limit. A memory whose store is full
    /// keeps pages uncompressed up to its limit; a thread that needs more room then ends the
    /// process.
    pub store_limit: Option<u64>,
    /// Where compressed pages go when they hit `store_limit`, the least recently used ones first.
    /// Needs [`FaultMode::Thread`].
    pub backing: Option<BackingOptions>,
    /// Who resolves touches of missing pages.
    pub faults: FaultMode,
}

impl MemoryOptions {
    /// Returns the defaults for a resident limit in bytes: regions of 64 GiB in all, LZ4, no limit
    /// for the store, faults in the touching thread.
    #[must_use]
    pub fn new(resident_limit: usize) -> Self {
        Self {
            resident_limit,
            capacity: 64 << 30,
            codec: CodecKind::Lz4.into(),
            store_limit: None,
            backing: None,
            faults: FaultMode::default(),
        }
    }

    builders! {
        with_capacity => capacity: usize,
        with_codec => codec: impl Into<CodecChoice>,
        with_store_limit => store_limit: impl Into<Option<u64>>,
        with_backing => backing: impl Into<Option<BackingOptions>>,
        with_faults => faults: FaultMode,
    }

    /// Returns limit and capacity in pages.
    pub(super) fn check(&self) -> Result<(u32, u32), RegionError> {
        if self.resident_limit / page_len() < LIMIT_PAGES_MIN {
            return Err(RegionError::LimitTooSmall(self.resident_limit));
        }
        if self.backing.is_some() && self.faults != FaultMode::Thread {
            return Err(RegionError::BackingNeedsThreads);
        }
        // More than the pages that can be counted is no limit.
        let limit = (self.resident_limit / page_len()).min(1 << 30) as u32;
        let capacity = (1..8 << 40).contains(&self.capacity);
        let capacity = capacity.then_some(self.capacity.div_ceil(page_len()) as u32);
        Ok((limit, capacity.ok_or(RegionError::Capacity(self.capacity))?))
    }
}

/// Why a memory or a region was not made, or pages were not pinned or paged out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// The limit is below 64 pages.
    #[error(
        "a resident limit of {0} bytes is too small (at least {least})",
        least = LIMIT_PAGES_MIN * page_len()
    )]
    LimitTooSmall(usize),
    /// All regions together have 1 byte to 8 TiB.
    #[error("a capacity of {0} bytes is not within 1 byte to 8 TiB")]
    Capacity(usize),
    /// A region has at least one byte.
    #[error("a region needs at least one byte")]
    Empty,
    /// The memory does not have enough address space left for another region.
    #[error("no address space for {bytes} more bytes (raise the memory's capacity)")]
    NoCapacity {
        /// Bytes asked for.
        bytes: usize,
    },
    /// The process has 1024 regions already.
    #[error("the process already has {} regions", super::registry::REGIONS_MAX)]
    TooManyRegions,
    /// The limit does not allow so many pins: 32 of its pages stay for pages that are not pinned.
    #[error(
        "cannot pin {bytes} more bytes: {pinned} are pinned, the resident limit is {limit} (raise \
         it, or pin less)"
    )]
    PinLimit {
        /// Bytes asked for, in whole pages.
        bytes: usize,
        /// Bytes pinned already.
        pinned: u64,
        /// The resident limit in bytes.
        limit: u64,
    },
    /// The store did not take all pages; the others stay uncompressed.
    #[error("the store takes no more pages (raise its limit)")]
    StoreFull,
    /// The memory was made by the parent of this process.
    #[error("the memory belongs to the parent process (make a new one after a fork)")]
    Elsewhere,
    /// The bytes do not lie in one region of the heap.
    #[error("the bytes do not lie in one region of this heap")]
    NotOurs,
    /// Only threads can bring pages in from a file.
    #[error("only threads can bring pages in from a file (FaultMode::Thread)")]
    BackingNeedsThreads,
    /// The system's pages are larger than 64 KiB.
    #[error("regions need pages of at most 64 KiB, the system has pages of {0} bytes")]
    PageSize(usize),
    /// The kernel lacks a feature of userfaultfd.
    #[error("this kernel cannot move pages (Linux 6.8 or later is needed): {0}")]
    Kernel(#[source] io::Error),
    /// The process may not handle faults of the kernel.
    #[error(
        "not permitted to handle kernel faults (setfacl -m u:USER:rw /dev/userfaultfd, or \
         FaultMode::InThread): {0}"
    )]
    NotPermitted(#[source] io::Error),
    /// The store cannot be made.
    #[error("{0}")]
    Store(String),
    /// The system refused memory, a mapping or a thread.
    #[error("{0}")]
    System(#[from] io::Error),
}

impl From<OpenError> for RegionError {
    fn from(error: OpenError) -> Self {
        Self::Store(error.to_string())
    }
}
