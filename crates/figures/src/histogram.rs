//! A histogram of times, of plain atomics: any number of threads record in it without a lock, and
//! so does a signal handler.
//!
//! Relaxed throughout: each bucket is right by itself, and none orders anything. Values recorded
//! during a read appear in some of its results: a count can be without its maximum, which is at
//! most a moment old.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::counter::Peak;

/// Buckets for each doubling of the value.
const PER_DOUBLING: u32 = 32;
const SHIFT: u32 = PER_DOUBLING.trailing_zeros();
/// Values of more bits are in the last bucket: in nanoseconds, those above 18 minutes.
const BITS: u32 = 40;
const BUCKETS: usize = ((BITS - SHIFT + 1) << SHIFT) as usize;

/// Values by their logarithm, in steps of at most 1/32. The owner knows the unit of values,
/// nanoseconds or microseconds.
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    max: Peak,
}

/// Quantiles of a [`Histogram`], each exact to 3 percent; all zero if nothing was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quantiles {
    /// The number of recorded values.
    pub count: u64,
    /// Half of them were at most this.
    pub p50: u64,
    /// 90 percent were at most this.
    pub p90: u64,
    /// 99 percent were at most this.
    pub p99: u64,
    /// 99.9 percent were at most this.
    pub p999: u64,
    /// The largest.
    pub max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; BUCKETS], max: Peak::default() }
    }
}

impl Histogram {
    /// Records a value. Allocates nothing and takes no lock.
    pub fn record(&self, value: u64) {
        self.max.raise(value);
        // Relaxed: a statistic, which guards nothing.
        self.buckets[bucket(value)].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many were recorded, and their quantiles.
    #[must_use]
    pub fn quantiles(&self) -> Quantiles {
        let count: u64 = self.counts().sum();
        let max = self.max.get();
        // More may come meanwhile, so each of these is reached.
        let wanted = [500, 900, 990, 999].map(|share| (count * share).div_ceil(1000).max(1));
        let (mut found, mut reached, mut sum) = ([0; 4], 0, 0);
        for (bucket, recorded) in self.counts().enumerate() {
            sum += recorded;
            while wanted.get(reached).is_some_and(|wanted| sum >= *wanted) {
                found[reached] = end(bucket).saturating_sub(1).min(max);
                reached += 1;
            }
        }
        let [p50, p90, p99, p999] = found;
        Quantiles { count, p50, p90, p99, p999, max }
    }

    /// Returns for each bucket in which anything was recorded the first value above it, and how
    /// many are in it: this many buckets for each doubling, a power of two of at most 32. Bounds
    /// are the same at each call.
    #[must_use]
    pub fn buckets(&self, per_doubling: u32) -> Vec<(u64, u64)> {
        let together = (PER_DOUBLING / per_doubling.clamp(1, PER_DOUBLING)) as usize;
        let parts = self.buckets.chunks(together).zip(1..);
        let counted = parts.map(|(part, number)| {
            let loads = part.iter().map(|bucket| bucket.load(Ordering::Relaxed));
            let count: u64 = loads.sum();
            (end(number * together - 1), count)
        });
        counted.filter(|(_, count)| *count > 0).collect()
    }

    fn counts(&self) -> impl Iterator<Item = u64> {
        self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed))
    }
}

/// Small values have a bucket each; larger ones one for each value of their upper bits.
fn bucket(value: u64) -> usize {
    let above = (u64::BITS - value.leading_zeros()).saturating_sub(SHIFT + 1);
    ((u64::from(above) << SHIFT) + (value >> above)).min(BUCKETS as u64 - 1) as usize
}

/// The first value above a bucket.
fn end(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let above = (bucket >> SHIFT).saturating_sub(1);
    (bucket - (above << SHIFT) + 1) << above
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_lies_in_its_bucket_and_buckets_are_narrow() {
        for value in (0..5000).chain([1 << 20, (1 << 30) + 12_345, (1 << BITS) - 1]) {
            let bucket = bucket(value);
            assert!(value < end(bucket), "{value}");
            assert!(bucket == 0 || value >= end(bucket - 1), "{value}");
            assert!(end(bucket) - 1 <= value + value / u64::from(PER_DOUBLING), "{value}");
        }
        assert_eq!(bucket(1 << BITS), BUCKETS - 1);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert_eq!(end(BUCKETS - 1), 1 << BITS);
    }

    #[test]
    fn quantiles_are_those_of_the_values() {
        let histogram = Histogram::default();
        assert_eq!(histogram.quantiles(), Quantiles::default());
        (1..=1000).for_each(|us| histogram.record(us * 1000));
        let Quantiles { count, p50, p90, p99, p999, max } = histogram.quantiles();
        let near = |value: u64, us: u64| (us * 1000..=us * 1032).contains(&value);
        assert!(near(p50, 500) && near(p90, 900) && near(p99, 990) && near(p999, 999));
        assert_eq!((count, max), (1000, 1_000_000));
    }

    #[test]
    fn values_of_all_lengths_are_told_apart() {
        let histogram = Histogram::default();
        let values = [300, 9_000, 2_000_000, 3_000_000_000, u64::MAX];
        values.into_iter().for_each(|value| histogram.record(value));
        let found = histogram.quantiles();
        assert!((2_000_000..2_065_000).contains(&found.p50), "{found:?}");
        assert_eq!(found.max, u64::MAX);
    }

    #[test]
    fn buckets_are_merged_within_a_doubling() {
        let histogram = Histogram::default();
        [1023, 1024, 1025, 2047, 5000].into_iter().for_each(|value| histogram.record(value));
        assert_eq!(histogram.buckets(1), [(1024, 1), (2048, 3), (8192, 1)]);
        let eighths = histogram.buckets(8);
        assert_eq!(eighths, [(1024, 1), (1152, 2), (2048, 1), (5120, 1)]);
        assert!(histogram.buckets(32).iter().map(|bucket| bucket.1).eq([1, 2, 1, 1]));
    }

    #[test]
    fn threads_record_side_by_side() {
        let histogram = Histogram::default();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let histogram = &histogram;
                scope.spawn(move || (0..1000).for_each(|value| histogram.record(value + thread)));
            }
        });
        let found = histogram.quantiles();
        assert_eq!((found.count, found.max), (4000, 1002));
    }
}
