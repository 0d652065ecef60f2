//! What other limits would have done: an estimate from how soon evicted pages came back.
//!
//! A page that comes back after `d` pages were evicted would have been kept by a limit that is higher
//! by the pages that pushed it on meanwhile. Those are not all `d`: a page that comes back itself, and
//! had been evicted later, was already before it. So each arrival counts with the probability
//! that it had been evicted for longer, or never was there, which the same distances tell (the
//! average working set of P. J. Denning and S. C. Schwartz, "Properties of the Working-Set
//! Model", CACM 1972, from times between uses). Exact for LRU if a program behaves alike throughout.
//! The policy spares hot pages, so here it is an estimate. Nothing is known of lower limits, since
//! accesses of resident pages are not seen.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::policy::{ERAS, Era};

/// Eras that are told apart, and one for all later: 16 times the resident pages.
const SEEN: usize = 16 * ERAS as usize;

/// Counts after how many eras pages came back. Any thread may record.
#[derive(Debug)]
pub struct Distances([AtomicU64; SEEN + 1]);

impl Default for Distances {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; SEEN + 1])
    }
}

impl Distances {
    /// Records that a page came back that was evicted in an earlier era.
    pub fn record(&self, evicted: Era, now: Era) {
        let eras = usize::from(now.since(evicted)).min(SEEN);
        // Relaxed: a statistic, which guards nothing.
        self.0[eras].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns what follows if so many pages were evicted in all.
    pub fn curve(&self, evicted: u64) -> Curve {
        let counts = self.0.each_ref().map(|count| count.load(Ordering::Relaxed));
        let all: u64 = counts.iter().sum();
        let (mut share, mut later) = (1.0, all);
        let mut steps = vec![(share, later as f64)];
        for count in &counts[..SEEN] {
            // Of the pages that arrive meanwhile, those that had been evicted for longer.
            let longer = evicted.max(all) - (all - later) - count / 2;
            share += longer as f64 / evicted.max(all).max(1) as f64 / f64::from(ERAS);
            later -= count;
            steps.push((share, later as f64));
        }
        Curve(steps)
    }
}

/// How many pages would have come back under other limits.
#[derive(Clone, Debug)]
pub struct Curve(Vec<(f64, f64)>);

impl Curve {
    /// Returns how many pages would have come back under a limit that is `share` of the real one;
    /// `None` for a lower one, and for one that is too high for the distances that were seen.
    pub fn returns(&self, share: f64) -> Option<u64> {
        let Some(at) = self.0.iter().position(|step| step.0 >= share) else {
            return self.0.last().is_some_and(|last| last.1 == 0.0).then_some(0);
        };
        let ((before, more), (after, fewer)) = (self.0[at.saturating_sub(1)], self.0[at]);
        let part = if after > before { (share - before) / (after - before) } else { 0.0 };
        (share >= 1.0).then_some((more + (fewer - more) * part).round() as u64)
    }

    /// Returns the least share of the limit under which no more than this part of the pages would
    /// have come back; `None` if it is too high for what was seen.
    pub fn enough(&self, part: f64) -> Option<f64> {
        let most = self.0[0].1 * part;
        self.0.iter().find(|step| step.1 <= most).map(|step| step.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Clock;
    use std::collections::{BTreeMap, HashMap};

    /// Runs touches through LRU of so many pages, the slow and sure way; returns how many pages were
    /// evicted and came back, and the distances.
    fn lru(touches: &[usize], resident: usize) -> (u64, u64, Distances) {
        let (clock, distances) = (Clock::default(), Distances::default());
        let (mut order, mut last) = (BTreeMap::new(), HashMap::new());
        let (mut left, mut evicted, mut back) = (HashMap::new(), 0, 0);
        for (time, &page) in touches.iter().enumerate() {
            if let Some(before) = last.insert(page, time) {
                order.remove(&before);
            } else if let Some(era) = left.remove(&page) {
                distances.record(era, clock.now());
                back += 1;
            }
            order.insert(time, page);
            if order.len() > resident {
                let (_, gone) = order.pop_first().expect("some");
                last.remove(&gone);
                clock.advance(1, resident);
                left.insert(gone, clock.now());
                evicted += 1;
            }
        }
        (evicted, back, distances)
    }

    /// Touches by a rule that is given a random number.
    fn touches(mut rule: impl FnMut(usize, u64) -> usize) -> Vec<usize> {
        let mut seed = 88_172_645_463_325_252_u64;
        let mut next = move || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        (0..100_000).map(|time| rule(time, next())).collect()
    }

    const PAGES: usize = 2048;
    const RESIDENT: usize = 512;

    fn patterns() -> [(&'static str, Vec<usize>); 5] {
        let any = |random: u64| random as usize % PAGES;
        let hot = |random: u64| match random >> 40 & 7 {
            0 => any(random),
            _ => any(random) / 4,
        };
        [
            ("uniform", touches(|_, random| any(random))),
            ("a hot quarter", touches(|_, random| hot(random))),
            ("small numbers", touches(|_, random| any(random) >> (random >> 32 & 7))),
            (
                "two loops",
                touches(
                    |time, _| {
                        if time % 2 == 0 { time / 2 % 700 } else { 1000 + time / 2 % 400 }
                    },
                ),
            ),
            ("a moving part", touches(|time, random| time / 100 + any(random) / 2)),
        ]
    }

    #[test]
    fn it_predicts_what_lru_does_under_higher_limits() {
        for (name, touches) in patterns() {
            let (evicted, back, distances) = lru(&touches, RESIDENT);
            let curve = distances.curve(evicted);
            assert_eq!(curve.returns(1.0), Some(back), "{name}");
            for percent in [125, 150, 200, 300] {
                let (_, real, _) = lru(&touches, RESIDENT * percent / 100);
                let predicted = curve.returns(percent as f64 / 100.0).expect("seen") as f64;
                let near = (predicted - real as f64).abs();
                assert!(
                    near <= 0.1 * real as f64 + 0.02 * back as f64,
                    "{name} at {percent} %: {predicted} predicted, {real} came back, of {back}"
                );
            }
        }
    }

    #[test]
    fn what_is_enough_is_enough() {
        for (name, touches) in patterns() {
            let (evicted, back, distances) = lru(&touches, RESIDENT);
            let enough = distances.curve(evicted).enough(0.05).expect("seen");
            let real = |share: f64| lru(&touches, (RESIDENT as f64 * share) as usize).1 as f64;
            assert!(real(1.05 * enough) <= 0.07 * back as f64, "{name}: {enough}");
            assert!(real(0.9 * enough) >= 0.05 * back as f64, "{name}: {enough} is too much");
        }
    }

    #[test]
    fn of_lower_limits_and_of_what_was_not_seen_nothing_is_said() {
        let nothing = Distances::default().curve(0);
        assert_eq!((nothing.returns(0.75), nothing.returns(1.0)), (None, Some(0)));
        assert_eq!(nothing.enough(0.05), Some(1.0));
        let (late, clock) = (Distances::default(), Clock::default());
        let first = clock.now();
        clock.advance(100, 1);
        late.record(first, clock.now());
        assert_eq!(late.curve(100).enough(0.05), None);
        assert_eq!(late.curve(100).returns(1000.0), None);
    }
}
