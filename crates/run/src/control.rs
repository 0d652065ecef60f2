//! Observes and controls a run while it lasts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::engine::Engine;
use super::figures::{Figures, Touched};
use zfold_uffd::page::page_len;

/// How long a page-out may take.
const PAGE_OUT_MAX: Duration = Duration::from_secs(30);

/// How often to check whether pages have left.
const LOOK: Duration = Duration::from_millis(20);

/// A run. After its end, nothing changes any longer.
#[derive(Clone)]
pub struct Control(Arc<Engine>);

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Control").finish()
    }
}

/// The figures and settings of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct State {
    /// Its figures.
    pub figures: Figures,
    /// How much memory it touched, if that is seen.
    pub touched: Option<Touched>,
    /// Which of the store's codecs compresses pages: 0 is its own, others are those of
    /// [`StoreOptions::recompression`](zfold_store::StoreOptions::recompression).
    pub codec: u8,
}

impl Control {
    pub(super) fn new(engine: Arc<Engine>) -> Self {
        Self(engine)
    }

    /// Returns the current state.
    ///
    /// # Cost
    /// Some microseconds, and one for each address space.
    pub fn state(&self) -> State {
        State {
            figures: self.0.figures(),
            touched: self.0.seen.touched(),
            codec: self.0.store().tunables().codec,
        }
    }

    /// Returns how long faults took so far: for each bucket that has any, its upper bound in
    /// nanoseconds and the faults in it. Bounds are about a tenth apart and stay the same.
    pub fn fault_latency(&self) -> Vec<(u64, u64)> {
        self.0.fault_latency(8)
    }

    /// Changes the limit of what is resident to `bytes`; pages above it are evicted within moments.
    pub fn set_limit(&self, bytes: u64) {
        self.0.set_limit(bytes);
    }

    /// Changes a second limit to `bytes`: of what is resident and what compressed pages take,
    /// together. As these take more, less may be resident, from that moment on. 4 MiB always may.
    /// There is none until it is set, and none with `u64::MAX`.
    pub fn set_limit_together(&self, bytes: u64) {
        self.0.set_limit_together(bytes);
    }

    /// Returns how many bytes are resident and how many compressed pages take; copies of resident
    /// pages are among these alone.
    ///
    /// # Cost
    /// Less than a microsecond.
    pub fn taken(&self) -> (u64, u64) {
        let resident = self.0.shared.budget.resident() * page_len();
        (resident as u64, self.0.store().held_bytes())
    }

    /// Changes the most memory that compressed pages may take, tables included.
    ///
    /// # Errors
    /// If that is less than is taken now and there is no backing file, the next page to leave would
    /// find no room: nothing changes, and the error is the bytes that are taken.
    pub fn set_store_limit(&self, bytes: u64) -> Result<(), u64> {
        let store = self.0.store();
        let held = store.held_bytes();
        if bytes < held && store.stats().backing_bytes == 0 {
            return Err(held);
        }
        let mut tunables = store.tunables();
        tunables.limit_bytes = Some(bytes);
        // A limit has no range.
        store.tune(&tunables).map_err(|_| held)
    }

    /// Compresses pages with another of the store's codecs from now on; see [`State::codec`].
    /// Returns whether there is a codec of this number. Pages that are already compressed stay as
    /// they are.
    pub fn set_codec(&self, codec: u8) -> bool {
        let store = self.0.store();
        let mut tunables = store.tunables();
        tunables.codec = codec;
        store.tune(&tunables).is_ok()
    }

    /// Ends all processes that are left, at once. The run ends as its program did.
    pub fn end_rest(&self) {
        self.0.shared.tracing.end_rest();
    }

    /// Pages out all memory that can leave, down to `least` bytes, and returns how many bytes are
    /// resident then. Waits up to 30 s. Programs that use their memory meanwhile wait for it.
    pub fn page_out(&self, least: u64) -> u64 {
        let limit =
            || (self.0.shared.budget.limit_alone() as u64).saturating_mul(page_len() as u64);
        let before = limit();
        let began = Instant::now();
        self.0.set_limit(least);
        let (mut resident, mut evicted) = (u64::MAX, 0);
        loop {
            std::thread::sleep(LOOK);
            let now = self.0.figures();
            // Nothing more leaves: the rest is in use, or cannot leave.
            let is_still = now.resident_bytes >= resident && now.evictions_total == evicted;
            (resident, evicted) = (now.resident_bytes, now.evictions_total);
            let most = if is_still { LOOK * 25 } else { PAGE_OUT_MAX };
            if resident <= least || began.elapsed() > most {
                break;
            }
        }
        // Unless it was set meanwhile.
        if limit() == least {
            self.0.set_limit(before);
        }
        resident
    }
}
