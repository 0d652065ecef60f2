//! Counters and the latency histogram: plain atomics, so that a signal handler can count.
//!
//! Any thread counts, at any time; nothing here is locked or allocated after it was made. Relaxed
//! throughout: each number is right by itself, none orders anything, and several read one after the
//! other may be of different moments.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets for each doubling of the time.
const PER_DOUBLING: u32 = 8;
const SHIFT: u32 = PER_DOUBLING.trailing_zeros();
/// Up to 2^40 ns, 18 minutes.
const BUCKETS: usize = (40 * PER_DOUBLING) as usize;

/// Times by their logarithm, in steps of 9 to 13 percent.
#[derive(Debug)]
pub(super) struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    max_ns: AtomicU64,
}

impl Histogram {
    pub(super) fn new() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; BUCKETS], max_ns: AtomicU64::new(0) }
    }

    /// Small times have a bucket each; larger ones one for each value of their upper bits.
    fn bucket(ns: u64) -> usize {
        let bits = u64::BITS - ns.leading_zeros();
        let above = bits.saturating_sub(SHIFT + 1);
        ((u64::from(above) << SHIFT) + (ns >> above)).min(BUCKETS as u64 - 1) as usize
    }

    /// The longest time of a bucket.
    fn upper(bucket: usize) -> u64 {
        let bucket = bucket as u64;
        let above = (bucket >> SHIFT).saturating_sub(1);
        let top = bucket - (above << SHIFT);
        ((top + 1) << above) - 1
    }

    pub(super) fn record(&self, ns: u64) {
        // Relaxed: counters.
        self.buckets[Self::bucket(ns)].fetch_add(1, Ordering::Relaxed);
        if ns > self.max_ns.load(Ordering::Relaxed) {
            self.max_ns.fetch_max(ns, Ordering::Relaxed);
        }
    }

    pub(super) fn summary(&self) -> Latency {
        let counts = self.buckets.each_ref().map(|bucket| bucket.load(Ordering::Relaxed));
        let total: u64 = counts.iter().sum();
        let max = self.max_ns.load(Ordering::Relaxed);
        let at = |per_mille: u64| {
            let wanted = (total * per_mille).div_ceil(1000).max(1);
            let mut sum = 0;
            let found = counts.iter().position(|count| {
                sum += count;
                sum >= wanted
            });
            Duration::from_nanos(found.map_or(0, Self::upper).min(max))
        };
        Latency {
            count: total,
            p50: at(500),
            p99: at(990),
            p999: at(999),
            max: Duration::from_nanos(max),
        }
    }
}

/// How long faults took, from the touch reaching us to the page being there. What the kernel
/// needs to deliver the signal comes on top.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Latency {
    /// Faults measured.
    pub count: u64,
    /// Half of them took no longer. Percentiles are exact to 13 percent.
    pub p50: Duration,
    /// 99 percent took no longer.
    pub p99: Duration,
    /// 99.9 percent took no longer.
    pub p999: Duration,
    /// The longest.
    pub max: Duration,
}

/// Declares the counters once: the atomics and the public figures.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[derive(Debug, Default)]
        pub(super) struct Counters { $(pub(super) $name: AtomicU64,)* }

        /// What a [`Memory`](super::Memory) holds and has done. `_total` counters only grow, the
        /// others are of now; all are read while threads are at work.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct MemoryStats {
            $($(#[$doc])* pub $name: u64,)*
            /// Most pages that may be uncompressed in memory.
            pub limit_pages: u64,
            /// Pages that are: in their place, on their way, and in the staging area.
            pub resident_pages: u64,
            /// Of these, pages in the staging area, which a touch brings back by a copy.
            pub staged_pages: u64,
            /// Of these, pages that are pinned; a page counts once for each pin.
            pub pinned_pages: u64,
            /// Pages that are compressed in the store, and nowhere else.
            pub stored_pages: u64,
            /// Pages that are in memory or given up, and of which the store keeps a compressed
            /// copy: one that leaves unchanged need not be compressed again. The store's limit
            /// counts them, and they go first when it is reached.
            pub copied_pages: u64,
            /// Bytes of memory that the store takes for both, with all that belongs to it.
            pub store_bytes: u64,
            /// Bytes that they have compressed.
            pub compressed_bytes: u64,
            /// How long faults took.
            pub latency: Latency,
        }

        impl Counters {
            pub(super) fn read(&self) -> MemoryStats {
                MemoryStats {
                    $($name: self.$name.load(Ordering::Relaxed),)*
                    ..MemoryStats::default()
                }
            }
        }
    };
}

counters! {
    /// Touches of missing pages.
    faults_total,
    /// Of these, pages that came out of the store.
    store_faults_total,
    /// Of these, pages that came back from the staging area.
    refaults_total,
    /// Of these, pages that nobody had touched before.
    first_touches_total,
    /// Pages brought beside a fault because the touches were in sequence, or on request.
    prefetched_total,
    /// Pages moved out to the staging area.
    evictions_total,
    /// Pages compressed into the store.
    stores_total,
    /// Pages that left without that, since the store still held what they were.
    kept_copies_total,
    /// Pages of zeros that were dropped instead.
    zero_pages_total,
    /// Faults that had to wait until another page had left.
    waits_for_room_total,
    /// Pages that could not leave, because a device or another process uses them.
    busy_pages_total,
    /// Pages that the store did not take, and which stayed in memory.
    store_failures_total,
}

/// Counts one more.
pub(super) fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_lies_in_its_bucket_and_buckets_are_narrow() {
        for ns in (0..5000).chain([1 << 20, (1 << 30) + 12345, 1 << 39]) {
            let bucket = Histogram::bucket(ns);
            assert!(ns <= Histogram::upper(bucket), "{ns}");
            assert!(bucket == 0 || ns > Histogram::upper(bucket - 1), "{ns}");
            assert!(Histogram::upper(bucket) <= ns + ns / 8, "{ns}");
        }
        assert_eq!(Histogram::bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_those_of_the_times() {
        let histogram = Histogram::new();
        assert_eq!(histogram.summary(), Latency::default());
        (1..=1000).for_each(|us| histogram.record(us * 1000));
        let Latency { count, p50, p99, p999, max } = histogram.summary();
        let near =
            |time: Duration, us: u64| (us * 1000..=us * 1130).contains(&(time.as_nanos() as u64));
        assert!(count == 1000 && near(p50, 500) && near(p99, 990) && near(p999, 999));
        assert_eq!(max, Duration::from_millis(1));
    }
}
