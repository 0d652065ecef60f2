//! `Memory`: the limit, the store and the threads that several regions share.
//!
//! All of it lives in [`Shared`], until the last region and the last clone are gone; then the
//! threads are ended, and store and staging are dropped with the core. A forked child has the
//! memory without the threads, and leaves alone what it cannot end.
//!
//! Its locks: `keys` is taken to make and to drop a region, with signals blocked; `workers` only by
//! the last owner. Neither is taken on the path of a fault.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use zfold_pool::process::Process;
use zfold_pool::{Lock, PageSize, PoolOptions};
use zfold_store::{Store, StoreOptions};

use super::core::{CHUNK, Core};
use super::fault::RESOLVER;
use super::frames::Frames;
use super::keys::Keys;
use super::options::{FaultMode, LIMIT_PAGES_MIN, MemoryOptions, RegionError};
use super::ring::Ring;
use super::room::Room;
use super::stats::MemoryStats;
use super::workers::Workers;
use crate::sys::map::Mapping;
use crate::sys::signal::Blocked;
use zfold_uffd::page::page_len;
use zfold_uffd::{Faults, Features, Uffd};

/// Threads that may bring in compressed pages at the same time; others wait for a moment.
const SCRATCHES: usize = 16;

/// A resident limit, a store for pages beyond it, and the threads that bring pages there. Regions
/// made from it share all three. It lives as long as any of its regions or clones.
///
/// # Examples
/// ```
/// use zfold_region::{Memory, MemoryOptions};
///
/// let memory = Memory::new(&MemoryOptions::new(1 << 20))?;
/// let (mut a, mut b) = (memory.region(4 << 20)?, memory.region(4 << 20)?);
/// a.as_mut_slice::<u8>().fill(1);
/// b.as_mut_slice::<u8>().fill(2);
/// assert!(memory.stats().resident_pages <= 256);
/// assert!(a.as_slice::<u8>().iter().all(|&byte| byte == 1));
/// # Ok::<(), zfold_region::RegionError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Memory {
    pub(super) shared: Arc<Shared>,
}

/// The state that ends with the last clone and the last region.
#[derive(Debug)]
pub(super) struct Shared {
    pub core: Arc<Core>,
    pub keys: Lock<Keys>,
    workers: Lock<Workers>,
    process: Process,
}

impl Memory {
    /// Makes a memory without regions.
    ///
    /// # Errors
    /// [`RegionError`] if an option is out of range, the kernel is older than Linux 6.8, the
    /// requested way to handle faults is not permitted, or the system refuses.
    ///
    /// # Cost
    /// Threads, address space in proportion to the capacity, and about 1 MiB of memory.
    pub fn new(options: &MemoryOptions) -> Result<Self, RegionError> {
        let (limit, capacity) = options.check()?;
        let pages = PageSize::new(page_len()).ok_or(RegionError::PageSize(page_len()))?;
        let slots = capacity.next_multiple_of(CHUNK);
        let (store, backed) = (store(options, pages, slots.into())?, options.backing.is_some());
        let by_threads = options.faults == FaultMode::Thread;
        let (uffd, protects) = open(by_threads)?;
        let ring_slots = Core::staging_target(limit) + 256;
        let ring_slots = ring_slots.next_power_of_two();
        let staging = Mapping::managed(ring_slots as usize * page_len())?;
        let frames = Frames::new(uffd, staging, by_threads, protects)?;
        let (room, ring) = (Room::new(limit), Ring::new(ring_slots)?);
        let core = Arc::new(Core::new(frames, room, ring, store, backed, slots, SCRATCHES)?);
        if !by_threads {
            RESOLVER.install()?;
        }
        let workers = Workers::start(&core, by_threads)?;
        let shared = Shared {
            core,
            keys: Lock::new(Keys::new(slots)),
            workers: Lock::new(workers),
            process: Process::current(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns the figures of the memory.
    #[must_use]
    pub fn stats(&self) -> MemoryStats {
        let core = &self.shared.core;
        let _blocked = Blocked::new();
        core.trim_copies();
        let (store, copies) = (core.store.stats(), core.copies.load(Ordering::Relaxed));
        MemoryStats {
            page_bytes: page_len() as u64,
            limit_pages: core.room.limit().into(),
            resident_pages: core.room.used().into(),
            staged_pages: core.ring.held(),
            pinned_pages: core.pinned.load(Ordering::Relaxed),
            stored_pages: core.stored.load(Ordering::Relaxed),
            copied_pages: copies,
            store_bytes: store.held_bytes(),
            compressed_bytes: store.pool.payload_bytes,
            latency: core.latency.quantiles(),
            ..core.counters.read()
        }
    }

    /// Takes room for pins of `pages` pages, if enough is left for pages that are not pinned.
    pub(super) fn reserve_pins(&self, pages: u32) -> Result<(), RegionError> {
        let core = &self.shared.core;
        let limit = u64::from(core.room.limit());
        let most = limit - LIMIT_PAGES_MIN as u64 / 2;
        let reserve =
            |pinned: u64| pinned.checked_add(pages.into()).filter(|&pinned| pinned <= most);
        let reserved = core.pinned.fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve);
        let page = page_len() as u64;
        reserved.map(|_| ()).map_err(|pinned| RegionError::PinLimit {
            bytes: pages as usize * page_len(),
            pinned: pinned * page,
            limit: limit * page,
        })
    }
}

impl Shared {
    /// Whether this is a forked child of the process that made the memory: it has neither the
    /// regions nor the threads.
    pub(super) fn is_elsewhere(&self) -> bool {
        !self.process.is_current()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let elsewhere = self.is_elsewhere();
        let mut workers = self.workers.lock();
        if elsewhere {
            workers.abandon();
        } else {
            workers.stop(&self.core);
        }
    }
}

fn store(options: &MemoryOptions, pages: PageSize, slots: u64) -> Result<Store, RegionError> {
    let pool = zfold_pool::create("region", &PoolOptions::default().with_page_size(pages));
    let pool = pool.map_err(|error| RegionError::Store(error.to_string()))?;
    let mut of = StoreOptions::new(slots, options.codec.spec);
    of.dictionary.clone_from(&options.codec.dictionary);
    of.limit_bytes = options.store_limit;
    // A refused page ends the process if its room is waited for, so a store that has reached its
    // limit takes pages again as soon as dropped copies make room.
    of.accept_percent = 100;
    of.backing.clone_from(&options.backing);
    Ok(Store::new(pool, &of)?)
}

/// Opens a descriptor for this process and agrees on the features; returns whether protecting pages
/// is one of them.
fn open(by_threads: bool) -> Result<(Uffd, bool), RegionError> {
    let (uffd, features) = if by_threads {
        let open = Uffd::open(Faults::All).or_else(|error| {
            let device = File::options().read(true).write(true).open("/dev/userfaultfd");
            device.and_then(|device| Uffd::open_by(&device)).map_err(|_| error)
        });
        (open.map_err(RegionError::NotPermitted)?, Features::MOVE)
    } else {
        let features = Features::MOVE.with(Features::SIGBUS);
        (Uffd::open(Faults::UserOnly)?, features)
    };
    let protects = uffd.handshake(features.with(Features::PROTECT)).is_ok();
    if !protects {
        uffd.handshake(features).map_err(RegionError::Kernel)?;
    }
    if by_threads {
        // Reads of messages wait.
        rustix::io::ioctl_fionbio(&uffd, false).map_err(io::Error::from)?;
    }
    Ok((uffd, protects))
}
