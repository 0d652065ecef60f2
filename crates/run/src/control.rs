//! Looking at a run, and steering it, while it goes on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::engine::Engine;

/// How long paging out may take.
const PAGE_OUT_MAX: Duration = Duration::from_secs(30);

/// How often is looked whether pages have left.
const LOOK: Duration = Duration::from_millis(20);

/// A run that goes on. After its end, nothing changes any more.
#[derive(Clone)]
pub struct Control(Arc<Engine>);

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Control").finish()
    }
}

/// What a run holds now, in bytes, and has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct State {
    /// The limit.
    pub limit_bytes: u64,
    /// The program was paused by [`Control::pause`].
    pub paused: bool,
    /// What counts against it.
    pub resident_bytes: u64,
    /// Pages in the store, uncompressed.
    pub stored_pages_bytes: u64,
    /// What these take in the store, with tables.
    pub stored_bytes: u64,
    /// The most that this may be.
    pub store_limit_bytes: Option<u64>,
    /// Which of the store's codecs compresses pages: 0 is its own, others are those of
    /// [`StoreOptions::recompression`](zfold_store::StoreOptions::recompression).
    pub codec: u8,
    /// Size of the backing file.
    pub backing_bytes: u64,
    /// Of it, in use.
    pub backing_used_bytes: u64,
    /// Memory that is locked ([`Kind::Locked`](super::Kind)), as seen in the last second; so are
    /// the others.
    pub locked_bytes: u64,
    /// Memory that cannot be moved at present.
    pub protected_bytes: u64,
    /// Shared memory.
    pub shared_bytes: u64,
    /// Pages of files.
    pub file_bytes: u64,
    /// Page tables.
    pub page_table_bytes: u64,
    /// Address spaces now.
    pub spaces: u64,
    /// Of these, managed.
    pub managed: u64,
    /// Processes that could not be managed, ever.
    pub unmanaged_total: u64,
    /// Page faults answered.
    pub faults_total: u64,
    /// Of these, pages taken back before they were compressed.
    pub refaults_total: u64,
    /// Of these, pages loaded from the store.
    pub loads_total: u64,
    /// Pages that left a process.
    pub evictions_total: u64,
    /// Times that more than the limit was seen for a while.
    pub over_limit_total: u64,
    /// Median of the latency of faults in nanoseconds.
    pub fault_p50_ns: u64,
    /// 99 percent of the faults were answered within this time, in nanoseconds.
    pub fault_p99_ns: u64,
}

impl Control {
    pub(super) fn new(engine: Arc<Engine>) -> Self {
        Self(engine)
    }

    /// Returns what the run holds now.
    ///
    /// # Cost
    /// Some microseconds, and one for each address space.
    pub fn state(&self) -> State {
        let (stats, store) = (self.0.stats(), self.0.store().stats());
        let tunables = self.0.store().tunables();
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let [locked_bytes, protected_bytes, shared_bytes, file_bytes, page_table_bytes] =
            self.0.staying();
        State {
            locked_bytes,
            protected_bytes,
            shared_bytes,
            file_bytes,
            page_table_bytes,
            limit_bytes: stats.limit_bytes,
            paused: self.0.is_paused(),
            store_limit_bytes: tunables.limit_bytes,
            codec: tunables.codec,
            resident_bytes: stats.charged_bytes,
            stored_pages_bytes: stats.stored_pages * zfold_uffd::page::PAGE as u64,
            stored_bytes: stats.stored_bytes,
            backing_bytes: store.backing_bytes,
            backing_used_bytes: store.backing_used_bytes,
            spaces: stats.spaces,
            managed: stats.spaces_attached,
            unmanaged_total: self.0.unmanaged_total(),
            faults_total: stats.latency.count,
            refaults_total: stats.swap_cache_faults_total,
            loads_total: stats.stored_faults_total,
            evictions_total: stats.evicted_total,
            over_limit_total: stats.over_limit_total,
            fault_p50_ns: nanos(stats.latency.p50),
            fault_p99_ns: nanos(stats.latency.p99),
        }
    }

    /// Returns how long faults took so far: for each bucket that has any, its upper bound in
    /// nanoseconds and the faults in it. Bounds are a tenth apart and stay the same.
    pub fn fault_latency(&self) -> Vec<(u64, u64)> {
        self.0.fault_latency(1.1).into_iter().filter(|(_, faults)| *faults > 0).collect()
    }

    /// Changes the limit to so many bytes; what exceeds it leaves within moments, as at the old
    /// limit.
    pub fn set_limit(&self, bytes: u64) {
        self.0.set_limit(bytes);
    }

    /// Changes the most that compressed pages may take, tables included.
    ///
    /// # Errors
    /// With less than is taken now and no backing file, the next page to leave would find no room:
    /// nothing changes, and the error is what is taken, in bytes.
    pub fn set_store_limit(&self, bytes: u64) -> Result<(), u64> {
        let store = self.0.store();
        let held = store.held_bytes();
        if bytes < held && store.stats().backing_bytes == 0 {
            return Err(held);
        }
        let mut tunables = store.tunables();
        tunables.limit_bytes = Some(bytes);
        // A limit is in no range.
        store.tune(&tunables).map_err(|_| held)
    }

    /// Compresses pages from now on by another of the store's codecs; see [`State::codec`]. Returns
    /// whether there is one of this number. What is compressed already stays as it is.
    pub fn set_codec(&self, codec: u8) -> bool {
        let store = self.0.store();
        let mut tunables = store.tunables();
        tunables.codec = codec;
        store.tune(&tunables).is_ok()
    }

    /// Stops all threads of the program where they are, or lets them go on. They do not notice,
    /// but for the time that passes; signals wait until they go on, except those that kill. Returns
    /// at once: a thread that is in the middle of a call stops behind it.
    pub fn pause(&self, paused: bool) {
        self.0.pause(paused);
    }

    /// Has all pages leave that can, down to `least` bytes, and returns how many bytes are resident
    /// then. Waits up to 30 s. Programs that use their memory meanwhile wait for it.
    pub fn page_out(&self, least: u64) -> u64 {
        let before = self.state().limit_bytes;
        let began = Instant::now();
        self.0.set_limit(least);
        let (mut resident, mut evicted) = (u64::MAX, 0);
        loop {
            std::thread::sleep(LOOK);
            let state = self.state();
            // Nothing leaves any more: the rest is in use, or cannot leave.
            let is_still = state.resident_bytes >= resident && state.evictions_total == evicted;
            (resident, evicted) = (state.resident_bytes, state.evictions_total);
            if resident <= least || (is_still && began.elapsed() > LOOK * 25) {
                break;
            }
            if began.elapsed() > PAGE_OUT_MAX {
                break;
            }
        }
        // Unless it was set meanwhile.
        if self.state().limit_bytes == least {
            self.0.set_limit(before);
        }
        resident
    }
}
