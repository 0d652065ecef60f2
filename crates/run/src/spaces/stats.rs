//! What the memory side counts.
//!
//! Counters are relaxed atomics that any thread adds to; each is right by itself, and nothing is
//! decided by them. Times of faults go to a histogram that [`Shared`](super::shared::Shared) has
//! behind a lock, a leaf.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;

/// Counters of all threads. Relaxed: each only grows, and nothing hangs on them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub zero_faults: Counter,
    pub zero_pages: Counter,
    pub stored_faults: Counter,
    pub swap_cache_faults: Counter,
    pub spurious_faults: Counter,
    pub waiting_faults: Counter,
    pub prefetched: Counter,
    pub evicted: Counter,
    pub fixed: Counter,
    pub zeros_found: Counter,
    pub stored: Counter,
    pub closed_pages: Counter,
    pub surveys: Counter,
    pub attached: Counter,
    pub forks: Counter,
    pub spaces: Counter,
    pub stored_pages_peak: AtomicU64,
    pub seen_pages_peak: AtomicU64,
    pub stored_bytes_peak: AtomicU64,
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: usize) {
        self.0.fetch_add(n as u64, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What the memory side holds and has done. `_total` counters only grow, the others are of now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Stats {
    /// Most bytes of anonymous memory that the tree should have.
    pub limit_bytes: u64,
    /// Bytes charged: pages of open memory that were seen, of closed memory that are there, and the
    /// swap cache.
    pub charged_bytes: u64,
    /// The most that was charged.
    pub charged_bytes_peak: u64,
    /// The most that was seen to be there.
    pub seen_bytes_peak: u64,
    /// Of the charged bytes, those of open memory, as seen last.
    pub open_bytes: u64,
    /// Of the charged bytes, those of the swap cache.
    pub swap_cache_bytes: u64,
    /// Pages in the store.
    pub stored_pages: u64,
    /// The most that were there, as seen when batches were stored.
    pub stored_pages_peak: u64,
    /// Bytes that the store holds for them.
    pub stored_bytes: u64,
    /// The most it held, as seen then.
    pub stored_bytes_peak: u64,
    /// Address spaces now.
    pub spaces: u64,
    /// Of these, attached.
    pub spaces_attached: u64,
    /// Spaces attached, ever.
    pub attached_total: u64,
    /// Spaces, ever.
    pub spaces_total: u64,
    /// Children of fork that began with managed memory.
    pub forks_total: u64,
    /// Faults on pages never touched.
    pub zero_faults_total: u64,
    /// Pages that these filled in.
    pub zero_pages_total: u64,
    /// Faults on pages in the store.
    pub stored_faults_total: u64,
    /// Faults on pages in the swap cache.
    pub swap_cache_faults_total: u64,
    /// Faults on pages that were there by then.
    pub spurious_faults_total: u64,
    /// Faults that waited for the evictor to make room.
    pub waiting_faults_total: u64,
    /// Pages loaded from the store besides the faulting ones.
    pub prefetched_total: u64,
    /// Pages moved out.
    pub evicted_total: u64,
    /// Pages that could not be moved (pinned, or not plain writable memory); tried again later.
    pub fixed_total: u64,
    /// Pages of zeros that were dropped.
    pub zeros_found_total: u64,
    /// Pages compressed into the store.
    pub stored_total: u64,
    /// Pages of memory that was open and was closed.
    pub closed_pages_total: u64,
    /// Times that the mappings of a process were read.
    pub surveys_total: u64,
    /// Times that memory was given although it was above the limit.
    pub over_limit_total: u64,
    /// How long faults took, from the message to the page.
    pub latency: Latency,
}

/// Times of faults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Latency {
    /// How many.
    pub count: u64,
    /// Their mean.
    pub mean: Duration,
    /// Half were at most this.
    pub p50: Duration,
    /// 90 percent were.
    pub p90: Duration,
    /// 99 percent were.
    pub p99: Duration,
    /// 99.9 percent were.
    pub p999: Duration,
    /// The longest.
    pub max: Duration,
}

/// Times in nanoseconds up to a minute, to two digits; longer ones count as a minute.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 2).expect("the bounds are constant and valid")
}

/// Returns the first time in nanoseconds above each bucket, and how many are in it.
pub(crate) fn steps(latency: &Histogram<u64>, factor: f64) -> Vec<(u64, u64)> {
    let steps = latency.iter_log(1024, factor);
    steps.map(|step| (step.value_iterated_to() + 1, step.count_since_last_iteration())).collect()
}

impl Latency {
    /// Summarises a histogram of nanoseconds.
    pub(crate) fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| Duration::from_nanos(histogram.value_at_quantile(quantile));
        Self {
            count: histogram.len(),
            mean: Duration::from_nanos(histogram.mean() as u64),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: Duration::from_nanos(histogram.max()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_all_lengths_are_told_apart() {
        let mut times = histogram();
        for nanoseconds in [300, 9_000, 2_000_000, 3_000_000_000, u64::MAX] {
            times.saturating_record(nanoseconds);
        }
        let latency = Latency::of(&times);
        assert!(latency.p50 >= Duration::from_millis(2), "{latency:?}");
        assert!(latency.p50 < Duration::from_millis(3), "{latency:?}");
        assert!(latency.max >= Duration::from_secs(60), "{latency:?}");
    }
}
