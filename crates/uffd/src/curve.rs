//! What other limits would have done: an estimate from how soon evicted pages came back.
//!
//! Under a limit that is higher by `n` pages, a page would not have been missing if, when it comes
//! back, fewer than `n` pages are absent that were evicted after it. Those are counted by the era
//! of their eviction, a list of ghosts without the list (the stack distance of Mattson et al.,
//! "Evaluation techniques for storage hierarchies", IBM Systems Journal 1970). Exact for LRU, but
//! for the length of an era, since that keeps under a higher limit all that it keeps under a lower
//! one. The policy learns what is hot by evicting it, under any limit, so here it is a rough
//! estimate. Absent pages that the program gives up are counted as if they were still needed.
//! Nothing is known of lower limits, since accesses of resident pages are not seen.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::policy::{ERA_BITS, ERAS, Era};

/// Steps of a 32nd of the limit that are told apart, up to 16 times as much, and one for the rest.
const STEPS: usize = 16 * ERAS as usize;

/// Counts after how many others pages came back. Any thread may record; relaxed throughout, since
/// these are statistics that guard nothing.
#[derive(Debug)]
pub struct Distances {
    /// Pages that came back, by how many 32nds of the limit had been evicted after them and were
    /// absent.
    back: [AtomicU64; STEPS + 1],
    /// Pages that are absent, by the era of their eviction.
    absent: [AtomicU32; 1 << ERA_BITS],
    /// The era of the last eviction.
    newest: AtomicU16,
}

impl Default for Distances {
    fn default() -> Self {
        Self {
            back: [const { AtomicU64::new(0) }; STEPS + 1],
            absent: [const { AtomicU32::new(0) }; 1 << ERA_BITS],
            newest: AtomicU16::new(0),
        }
    }
}

impl Distances {
    /// Records that so many pages are evicted.
    pub fn left(&self, pages: usize, now: Era) {
        let newest = Era::from_number(self.newest.swap(now.number(), Ordering::Relaxed));
        // What was evicted so long ago that its era has come again is forgotten.
        newest.until(now).for_each(|era| self.at(era).store(0, Ordering::Relaxed));
        self.at(now).fetch_add(pages as u32, Ordering::Relaxed);
    }

    /// Records that pages come back that were evicted in these earlier eras, while so many are
    /// resident. Pages of a window left in the same era, mostly: its distance is counted once.
    pub fn returned(&self, evicted: &[Era], now: Era, resident: usize) {
        let of = |era| self.at(era).load(Ordering::Relaxed) as usize;
        for same in evicted.chunk_by(Era::eq) {
            let later: usize = same[0].until(now).map(of).sum();
            for &era in same {
                let after = later + of(era) / 2;
                let step = (after * usize::from(ERAS) / resident.max(1)).min(STEPS);
                self.back[step].fetch_add(1, Ordering::Relaxed);
                let less = |pages: u32| Some(pages.saturating_sub(1));
                let _ = self.at(era).fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
            }
        }
    }

    fn at(&self, era: Era) -> &AtomicU32 {
        &self.absent[usize::from(era.number())]
    }

    /// Returns what follows of other limits.
    pub fn curve(&self) -> Curve {
        let counts = self.back.each_ref().map(|count| count.load(Ordering::Relaxed));
        let mut later = counts.iter().sum();
        let steps = counts.iter().map(|count| {
            later -= count;
            later
        });
        Curve(std::iter::once(counts.iter().sum()).chain(steps.take(STEPS)).collect())
    }
}

/// How many pages would have come back under limits that are higher by so many 32nds.
#[derive(Clone, Debug)]
pub struct Curve(Vec<u64>);

impl Curve {
    /// Returns how many pages would have come back under a limit that is `share` of the real one;
    /// `None` for a lower one, and for one that is too high for what is counted.
    pub fn returns(&self, share: f64) -> Option<u64> {
        let step = (share - 1.0) * f64::from(ERAS);
        let at = (step >= 0.0).then_some(step as usize)?;
        let (more, fewer) = (*self.0.get(at)? as f64, *self.0.get(at + 1)? as f64);
        Some((more + (fewer - more) * step.fract()).round() as u64)
    }

    /// Returns the least share of the limit under which no more than this part of the pages would
    /// have come back; `None` if it is too high for what is counted.
    pub fn enough(&self, part: f64) -> Option<f64> {
        let most = self.0[0] as f64 * part;
        let step = self.0.iter().position(|&later| later as f64 <= most)?;
        Some(1.0 + step as f64 / f64::from(ERAS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Clock;
    use std::collections::{BTreeMap, HashMap};

    /// Runs touches through LRU of so many pages, the slow and sure way; returns how many pages
    /// came back, and the distances.
    fn lru(touches: &[usize], resident: usize) -> (u64, Distances) {
        let (clock, distances) = (Clock::default(), Distances::default());
        let (mut order, mut last) = (BTreeMap::new(), HashMap::new());
        let (mut left, mut back) = (HashMap::new(), 0);
        for (time, &page) in touches.iter().enumerate() {
            if let Some(before) = last.insert(page, time) {
                order.remove(&before);
            } else if let Some(era) = left.remove(&page) {
                distances.returned(&[era], clock.now(), resident);
                back += 1;
            }
            order.insert(time, page);
            if order.len() > resident {
                let (_, gone) = order.pop_first().expect("some");
                last.remove(&gone);
                distances.left(1, clock.now());
                left.insert(gone, clock.now());
                clock.advance(1, resident);
            }
        }
        (back, distances)
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
            let (back, distances) = lru(&touches, RESIDENT);
            let curve = distances.curve();
            assert_eq!(curve.returns(1.0), Some(back), "{name}");
            for percent in [125, 150, 200, 300] {
                let (real, _) = lru(&touches, RESIDENT * percent / 100);
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
            let (back, distances) = lru(&touches, RESIDENT);
            let enough = distances.curve().enough(0.05).expect("seen");
            let real = |share: f64| lru(&touches, (RESIDENT as f64 * share) as usize).0 as f64;
            assert!(real(1.05 * enough) <= 0.07 * back as f64, "{name}: {enough}");
            assert!(real(0.9 * enough) >= 0.05 * back as f64, "{name}: {enough} is too much");
        }
    }

    #[test]
    fn of_lower_limits_and_of_what_was_not_seen_nothing_is_said() {
        let nothing = Distances::default().curve();
        assert_eq!((nothing.returns(0.75), nothing.returns(1.0)), (None, Some(0)));
        assert_eq!(nothing.enough(0.05), Some(1.0));
        let (late, clock) = (Distances::default(), Clock::default());
        let first = clock.now();
        late.left(1, first);
        clock.advance(100, 1);
        late.left(100, clock.now());
        late.returned(&[first], clock.now(), 1);
        assert_eq!((late.curve().enough(0.05), late.curve().returns(1000.0)), (None, None));
    }

    #[test]
    fn eras_that_come_again_begin_with_nothing() {
        let (distances, clock) = (Distances::default(), Clock::default());
        distances.left(1000, clock.now());
        for eras in [(1 << ERA_BITS) - 1, 4] {
            clock.advance(eras, usize::from(ERAS));
            distances.left(1, clock.now());
        }
        let absent = distances.absent.iter().map(|pages| pages.load(Ordering::Relaxed));
        assert_eq!(absent.sum::<u32>(), 2);
    }
}
