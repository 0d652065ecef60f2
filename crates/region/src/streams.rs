//! Recognises sequences of touches, so that the pages that follow can be brought ahead: upwards,
//! downwards, and in steps of several pages, as those through a column of a table are.
//!
//! A signal handler reads and changes them, so each sequence is one word. All of it is hints: two
//! simultaneous changes of one of them cost a prefetch.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Sequences of touches that are followed at the same time.
const STREAMS: usize = 4;

/// Most pages from one touch to the next that count as a step of a sequence.
const STEP_MAX: u32 = 64;

/// Pages at equal distances. It fits in one word; 0 is no page at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Steps {
    /// Key of the first page.
    pub from: u32,
    /// How many pages there are.
    pub count: u16,
    /// Pages from each to the next, downwards if negative.
    pub step: i8,
    /// The first was touched by a write: the others will be, too.
    pub writes: bool,
}

impl Steps {
    /// Pages one after the other: as many of the range as are counted.
    pub(super) fn upwards(keys: &Range<u32>) -> Self {
        let count = (keys.end - keys.start).min(u16::MAX.into()) as u16;
        Self { from: keys.start, count, step: 1, writes: false }
    }

    pub(super) fn pack(self) -> u64 {
        let (step, writes) = (u64::from(self.step.cast_unsigned()), u64::from(self.writes));
        u64::from(self.from) << 32 | u64::from(self.count) << 16 | writes << 8 | step
    }

    pub(super) fn unpack(word: u64) -> Self {
        let (step, writes) = ((word as u8).cast_signed(), word >> 8 & 1 != 0);
        Self { from: (word >> 32) as u32, count: (word >> 16) as u16, step, writes }
    }

    /// Whether no page lies between two of them.
    pub(super) fn are_neighbours(self) -> bool {
        self.step.abs() == 1
    }

    /// Returns the key of the page after `at` others. It wraps around where there is none.
    pub(super) fn key(self, at: u16) -> u32 {
        self.from.wrapping_add_signed(i32::from(at) * i32::from(self.step))
    }

    /// Returns the first pages, at most `most`, and the others.
    pub(super) fn split(self, most: u16) -> (Self, Self) {
        let first = self.count.min(most);
        let rest = Self { from: self.key(first), count: self.count - first, ..self };
        (Self { count: first, ..self }, rest)
    }

    /// Returns those up to the first that is not one of `keys`.
    pub(super) fn within(self, keys: &Range<u32>) -> Self {
        if !keys.contains(&self.from) {
            return Self { count: 0, ..self };
        }
        let left = if self.step < 0 { self.from - keys.start } else { keys.end - 1 - self.from };
        let most = left / u32::from(self.step.unsigned_abs().max(1)) + 1;
        Self { count: most.min(self.count.into()) as u16, ..self }
    }

    /// Whether a touch of `key` continues the sequence whose last touch brought these, which it
    /// does anywhere among them, too: what was to come ahead may be late.
    fn goes_on_at(self, key: u32) -> bool {
        let (distance, step) = (i64::from(key) - i64::from(self.from), i64::from(self.step));
        step != 0 && distance % step == 0 && (1..=self.count.into()).contains(&(distance / step))
    }
}

/// The sequences of one region: for each, the pages that its last touch was to bring, of which the
/// first is the one that was touched. A step of 0 is not yet known, and one that only two touches
/// had is a guess: it has one page.
#[derive(Debug, Default)]
pub(super) struct Streams {
    words: [AtomicU64; STREAMS],
    turn: AtomicUsize,
}

impl Streams {
    /// Returns which pages to bring for a touch of `key`: that one alone, or twice as many as last
    /// time, up to `most`, if the touch continues a sequence.
    pub(super) fn touched(&self, key: u32, most: u16) -> Steps {
        // Relaxed: hints.
        let last = |word: &AtomicU64| Steps::unpack(word.load(Ordering::Relaxed));
        let followed = self.words.iter().find_map(|word| Some((word, follows(last(word), key)?)));
        let (word, steps) = followed.unwrap_or_else(|| {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            let mut newest_first = (1..=STREAMS).map(|before| turn.wrapping_sub(before) % STREAMS);
            // The touch before stays: its own sequence may go on.
            let step = newest_first.find_map(|at| guess(last(&self.words[at]), key));
            (
                &self.words[turn % STREAMS],
                Steps { from: key, count: 1, step: step.unwrap_or(0), writes: false },
            )
        });
        let steps = Steps { count: steps.count.min(most), ..steps };
        word.store(steps.pack(), Ordering::Relaxed);
        steps
    }
}

/// Returns what a touch of `key` brings if it continues a sequence.
fn follows(last: Steps, key: u32) -> Option<Steps> {
    let is_next = last.count == 1 && key.abs_diff(last.from) == 1;
    let step = if is_next { distance(last, key)? } else { last.step };
    let goes_on = is_next || last.goes_on_at(key);
    goes_on.then(|| Steps { from: key, count: last.count.saturating_mul(2), step, ..last })
}

/// Returns the step of a sequence whose first two touches may be `last` and `key`.
fn guess(last: Steps, key: u32) -> Option<i8> {
    let is_near = last.count == 1 && (1..=STEP_MAX).contains(&key.abs_diff(last.from));
    is_near.then(|| distance(last, key))?
}

fn distance(last: Steps, key: u32) -> Option<i8> {
    i8::try_from(i64::from(key) - i64::from(last.from)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_brings_twice_as_many_at_each_touch() {
        for (step, expected) in [
            (1, [1, 2, 4, 8, 16, 32, 64, 128, 128]),
            (-1, [1, 2, 4, 8, 16, 32, 64, 128, 128]),
            // The step is known only after a third touch.
            (7, [1, 1, 2, 4, 8, 16, 32, 64, 128]),
            (-64, [1, 1, 2, 4, 8, 16, 32, 64, 128]),
        ] {
            let (streams, mut key) = (Streams::default(), 100_000_u32);
            for count in expected {
                let steps = streams.touched(key, 128);
                assert_eq!((steps.from, steps.count), (key, count), "in steps of {step}");
                assert!(count == 1 || steps.step == step);
                key = key.wrapping_add_signed(i32::from(count) * i32::from(step));
            }
        }
    }

    #[test]
    fn touches_here_and_there_bring_one_page_each() {
        let streams = Streams::default();
        for key in [5, 500, 20, 3, 400, 1000, 8, 0, u32::MAX, 77] {
            assert_eq!(streams.touched(key, 128).count, 1, "{key}");
        }
    }

    #[test]
    fn a_touch_of_a_page_that_is_late_goes_on() {
        for step in [1, -1, 3] {
            let streams = Streams::default();
            let at = |steps: i32| 1000_u32.wrapping_add_signed(steps * step);
            for steps in [0, 1, 2] {
                streams.touched(at(steps), 128);
            }
            let brought = streams.touched(at(3), 128).count;
            assert_eq!(streams.touched(at(5), 128).count, brought * 2, "in steps of {step}");
            assert_eq!(streams.touched(at(50), 128).count, 1, "too far");
        }
    }

    #[test]
    fn sequences_are_followed_at_the_same_time() {
        let streams = Streams::default();
        let mut keys = [0_u32, 10_000, 20_000, 30_000];
        for round in 0..5 {
            for (key, step) in keys.iter_mut().zip([1, -1, 1, -1]) {
                assert_eq!(streams.touched(*key + 5000, 128).count, 1 << round);
                *key = key.wrapping_add_signed(step << round);
            }
        }
    }

    #[test]
    fn sequences_that_begin_near_each_other_are_told_apart() {
        let streams = Streams::default();
        for (keys, count) in [([0, 30], 1), ([1, 31], 2), ([3, 33], 4), ([7, 37], 8)] {
            for key in keys {
                let steps = streams.touched(key, 128);
                assert!(steps.count == count && (count == 1 || steps.step == 1), "{steps:?}");
            }
        }
    }

    #[test]
    fn steps_are_split_and_end_with_a_range() {
        let down = Steps { from: 100, count: 20, step: -3, writes: false };
        for steps in [down, Steps { writes: true, ..down }] {
            assert_eq!(Steps::unpack(steps.pack()), steps);
        }
        let (first, rest) = down.split(16);
        assert_eq!((first.count, rest), (16, Steps { from: 52, count: 4, ..down }));
        assert_eq!(down.split(30).1.count, 0);
        assert_eq!(down.within(&(50..101)).count, 17, "100, 97 and so on to 52");
        assert_eq!(down.within(&(50..100)).count, 0);
        let up = Steps::upwards(&(100..120));
        assert_eq!((up.count, up.within(&(100..110)).count, up.key(19)), (20, 10, 119));
    }
}
