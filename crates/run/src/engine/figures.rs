//! The figures of the memory side.

use std::time::Duration;

use zfold_uffd::page::page_len;

use crate::engine::Engine;
use crate::figures::Figures;
use crate::options::{Estimate, Report, Staying};
use crate::shared::Shared;
use crate::spaces::managed::lock;
use crate::sys::proc;

/// Percents of the limit for which is estimated how many pages would have come back.
const PERCENTS: [u32; 6] = [50, 75, 100, 125, 150, 200];
/// The part of them that may come back under a limit that is enough.
const FEW: f64 = 0.01;

impl Engine {
    /// Returns the figures.
    pub(crate) fn figures(&self) -> Figures {
        let Shared { budget, counters, .. } = &*self.shared;
        let (spaces, store) = (self.shared.books.all(), self.store().stats());
        let bytes = |pages: usize| (pages * page_len()) as u64;
        let (counted, faults) = (counters.read(), self.shared.latency.quantiles());
        let (now, peak) = lock(&self.shared.kinds).bytes();
        let own_bytes = lock(&self.shared.kinds).own_bytes;
        let [locked_bytes, protected_bytes, left_open_bytes, ..] = now;
        let [.., shared_bytes, file_bytes, page_table_bytes] = now;
        let stored_bytes = self.store().held_bytes();
        let stored_pages = self.shared.cold.stock.keys().used() as u64;
        let unmanaged_total = lock(&self.shared.books.unmanaged).total;
        Figures {
            limit_bytes: bytes(budget.limit()),
            resident_bytes: bytes(budget.charge()),
            peak_charge_bytes: bytes(budget.peak()),
            stored_pages,
            stored_pages_bytes: stored_pages * page_len() as u64,
            stored_bytes,
            copied_pages: budget.copied() as u64,
            store_limit_bytes: self.store().tunables().limit_bytes.unwrap_or(0),
            // Other threads update the peak only now and then.
            peak_stored_pages: counted.peak_stored_pages.max(stored_pages),
            peak_stored_bytes: counted.peak_stored_bytes.max(stored_bytes),
            waiting_bytes: bytes(lock(&self.shared.cold.swap_cache).pages()),
            own_bytes,
            backing_bytes: store.backing_bytes,
            backing_used_bytes: store.backing_used_bytes,
            locked_bytes,
            protected_bytes,
            left_open_bytes,
            shared_bytes,
            file_bytes,
            page_table_bytes,
            peak_locked_bytes: peak[0],
            peak_protected_bytes: peak[1],
            peak_left_open_bytes: peak[2],
            peak_shared_bytes: peak[3],
            peak_file_bytes: peak[4],
            peak_page_table_bytes: peak[5],
            faults_total: faults.count,
            fault_p50_ns: faults.p50,
            fault_p99_ns: faults.p99,
            spaces: spaces.len() as u64,
            managed: spaces.iter().filter(|space| space.is_attached()).count() as u64,
            processes_total: self.shared.books.total(),
            unmanaged_total,
            ..counted
        }
    }

    /// Returns the kinds of memory that turned out to stay since the last call and are large.
    pub(crate) fn newly_staying(&self) -> Vec<Staying> {
        let untold = lock(&self.shared.kinds).untold();
        let named = |one: Staying| Staying { program: proc::name(one.pid), ..one };
        untold.into_iter().map(named).collect()
    }

    /// Returns the report of a run that took `wall`.
    pub(crate) fn report(&self, wall: Duration) -> Report {
        Report {
            wall,
            figures: self.figures(),
            touched: self.seen.touched(),
            unmanaged: lock(&self.shared.books.unmanaged).listed.clone(),
            fault_latency: self.fault_latency(1),
            fault_quantiles: self.shared.latency.quantiles(),
            estimate: self.estimate(),
        }
    }

    /// Returns what other limits would have done.
    fn estimate(&self) -> Estimate {
        let (budget, curve) = (&self.shared.budget, self.shared.budget.curve());
        let limit_bytes = (budget.limit() * page_len()) as f64;
        let returns = |percent| (percent, curve.returns(f64::from(percent) / 100.0));
        Estimate {
            returns: PERCENTS.map(returns).to_vec(),
            enough_bytes: curve.enough(FEW).map(|share| (share * limit_bytes) as u64),
        }
    }

    /// Returns how long faults took: for each bucket that has any, its upper bound and the faults
    /// in it, with `per_doubling` buckets for each doubling.
    pub(crate) fn fault_latency(&self, per_doubling: u32) -> Vec<(u64, u64)> {
        self.shared.latency.buckets(per_doubling)
    }
}
