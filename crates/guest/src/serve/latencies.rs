//! How long faults waited: counts by length, which any thread may add to.

use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets for each power of two.
const PARTS: u64 = 8;
const PARTS_BITS: u32 = PARTS.trailing_zeros();

/// Buckets: up to 2^40 ns, which are 18 minutes.
const BUCKETS: usize = (40 * PARTS) as usize;

/// Counts of lengths in nanoseconds, within an eighth.
#[derive(Debug)]
pub(super) struct Latencies([AtomicU64; BUCKETS]);

impl Latencies {
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    pub(super) fn add(&self, ns: u64) {
        // Relaxed: counters.
        self.0[Self::bucket(ns)].fetch_add(1, Ordering::Relaxed);
    }

    fn bucket(ns: u64) -> usize {
        if ns < PARTS {
            return ns as usize;
        }
        let power = ns.ilog2();
        let part = (ns >> (power - PARTS_BITS)) - PARTS;
        let bucket = u64::from(power - PARTS_BITS + 1) * PARTS + part;
        (bucket as usize).min(BUCKETS - 1)
    }

    /// Returns the length below which everything in a bucket lies.
    fn bound(bucket: usize) -> u64 {
        let (power, part) = (bucket as u64 / PARTS, bucket as u64 % PARTS);
        match power {
            0 => part + 1,
            power => (PARTS + part + 1) << (power - 1),
        }
    }

    /// Returns the length below which this share lies; 0 of none.
    pub(super) fn quantile(&self, share: f64) -> u64 {
        let counts: Vec<u64> = self.0.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let wanted = (counts.iter().sum::<u64>() as f64 * share).ceil() as u64;
        let mut seen = 0;
        let found = counts.iter().position(|count| {
            seen += count;
            seen >= wanted.max(1)
        });
        found.map_or(0, Self::bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_an_eighth() {
        let latencies = Latencies::new();
        assert_eq!(latencies.quantile(0.5), 0);
        for ns in [1, 7, 8, 9, 1000, 9_999, 123_456_789, u64::MAX] {
            let bound = Latencies::bound(Latencies::bucket(ns));
            let most = (1 << 40) - 1;
            assert!(bound > ns.min(most) && bound - bound / 8 - 1 <= ns, "{ns}: {bound}");
        }
        (0..90).for_each(|_| latencies.add(10_000));
        (0..10).for_each(|_| latencies.add(50_000));
        let (p50, p99) = (latencies.quantile(0.5), latencies.quantile(0.99));
        assert!((10_000..11_300).contains(&p50) && (50_000..56_300).contains(&p99), "{p50} {p99}");
    }
}
