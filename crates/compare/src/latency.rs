//! How long single operations took: quantiles, and histograms drawn as bpftrace draws them.
//!
//! Times are kept in an HDR histogram with three significant digits, so that any quantile is
//! within 0.1 % of the true one at a fixed cost in memory, all of it touched at creation.

use std::fmt::Write as _;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// The longest time that is distinguished from longer ones: ten minutes.
const LONGEST_NS: u64 = 600_000_000_000;
/// Width of the longest bar of a drawing, as in bpftrace.
const BAR_COLUMNS: u64 = 52;

/// The times of many operations of one kind.
#[derive(Clone, Debug)]
pub struct Latency {
    times: Histogram<u64>,
}

/// Quantiles of a [`Latency`], in nanoseconds; all zero when nothing was timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Half of the operations took at most this long.
    pub p50: u64,
    /// 90 % took at most this long.
    pub p90: u64,
    /// 99 % took at most this long.
    pub p99: u64,
    /// 99.9 % took at most this long.
    pub p999: u64,
    /// The slowest operation.
    pub max: u64,
    /// The arithmetic mean, rounded.
    pub mean: u64,
}

impl Default for Latency {
    fn default() -> Self {
        Self::new()
    }
}

impl Latency {
    /// Returns an empty collection.
    pub fn new() -> Self {
        let mut times = Histogram::new_with_bounds(1, LONGEST_NS, 3)
            .expect("the bounds are constant and valid");
        // Writes every counter: later recording takes no new memory from the system.
        times.clear();
        Self { times }
    }

    /// Adds one operation; times beyond ten minutes count as ten minutes.
    pub fn record(&mut self, time: Duration) {
        self.record_many(time, 1);
    }

    /// Adds `count` operations that took equally long.
    pub fn record_many(&mut self, time: Duration, count: u64) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.times.saturating_record_n(nanoseconds.max(1), count);
    }

    /// Forgets all operations; keeps the memory.
    pub fn clear(&mut self) {
        self.times.clear();
    }

    /// Adds all operations of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.times.add(&other.times).expect("all collections have the same bounds");
    }

    /// Returns how many operations were recorded.
    pub fn count(&self) -> u64 {
        self.times.len()
    }

    /// Returns the quantiles.
    pub fn summary(&self) -> Summary {
        let at = |quantile| self.times.value_at_quantile(quantile);
        Summary {
            p50: at(0.50),
            p90: at(0.90),
            p99: at(0.99),
            p999: at(0.999),
            max: self.times.max(),
            mean: self.times.mean().round() as u64,
        }
    }

    /// Draws the counts by powers of two in nanoseconds, one line a bucket, ended by newlines.
    ///
    /// From the first bucket that is not empty to the last; nothing when there is none.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// let mut times = zfold_compare::latency::Latency::new();
    /// times.record(Duration::from_nanos(9_000));
    /// assert!(times.drawing().starts_with("[8K, 16K)               1 |@@@@"));
    /// ```
    pub fn drawing(&self) -> String {
        let buckets = self.buckets();
        let most = buckets.iter().map(|&(_, count)| count).max().unwrap_or(1);
        let mut lines = String::new();
        for (exponent, count) in buckets {
            let bar = "@".repeat((count * BAR_COLUMNS / most) as usize);
            let label = bucket_label(exponent);
            writeln!(lines, "{label:<16} {count:>8} |{bar:<52}|").expect("a String takes all");
        }
        lines
    }

    /// Returns the counts by powers of two: with each `i`, how many operations took `2^i` to
    /// `2^(i+1)` nanoseconds.
    ///
    /// From the first bucket that is not empty to the last; nothing when there is none.
    pub fn buckets(&self) -> Vec<(u32, u64)> {
        let counts = self.log2_counts();
        let used = |count: &u64| *count > 0;
        match (counts.iter().position(used), counts.iter().rposition(used)) {
            (Some(first), Some(last)) => (first..=last).map(|at| (at as u32, counts[at])).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns how many operations took `2^i` to `2^(i+1)` nanoseconds, by `i`.
    ///
    /// Exact: the buckets of the fine histogram never straddle a power of two.
    fn log2_counts(&self) -> [u64; 64] {
        let mut counts = [0; 64];
        for step in self.times.iter_recorded() {
            let exponent = step.value_iterated_to().max(1).ilog2();
            counts[exponent as usize] += step.count_since_last_iteration();
        }
        counts
    }
}

/// Returns bpftrace's name of the bucket from `2^exponent` to its double.
fn bucket_label(exponent: u32) -> String {
    match exponent {
        0 => "[1]".to_owned(),
        _ => format!("[{}, {})", power_label(exponent), power_label(exponent + 1)),
    }
}

/// Returns `2^exponent` with bpftrace's binary suffixes.
///
/// # Panics
/// When that is beyond 64 bits.
fn power_label(exponent: u32) -> String {
    const SUFFIXES: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    let mantissa = 1u64 << (exponent % 10);
    format!("{mantissa}{}", SUFFIXES[(exponent / 10) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(nanoseconds: &[u64]) -> Latency {
        let mut latency = Latency::new();
        for &ns in nanoseconds {
            latency.record(Duration::from_nanos(ns));
        }
        latency
    }

    #[test]
    fn summary_orders_the_quantiles() {
        let latency = times(&(1..=1000).collect::<Vec<_>>());
        let summary = latency.summary();
        assert_eq!((summary.p50, summary.p90, summary.p99), (500, 900, 990));
        assert_eq!((summary.p999, summary.max), (999, 1000));
        assert!((500..=501).contains(&summary.mean));
    }

    #[test]
    fn drawing_matches_bpftrace() {
        let mut nanoseconds = vec![9_000; 104];
        nanoseconds.extend([1; 1]);
        nanoseconds.extend([3; 51]);
        nanoseconds.extend([8; 2]);
        let expected = "\
[1]                     1 |                                                    |
[2, 4)                 51 |@@@@@@@@@@@@@@@@@@@@@@@@@                           |
[4, 8)                  0 |                                                    |
[8, 16)                 2 |@                                                   |
";
        let drawing = times(&nanoseconds).drawing();
        assert!(drawing.starts_with(expected), "{drawing}");
        let last =
            "[8K, 16K)             104 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|\n";
        assert!(drawing.ends_with(last), "{drawing}");
        assert_eq!(drawing.lines().count(), 14);
    }

    #[test]
    fn power_of_two_opens_its_bucket() {
        assert!(times(&[1024]).drawing().starts_with("[1K, 2K) "));
        assert!(times(&[1023]).drawing().starts_with("[512, 1K) "));
    }
}
