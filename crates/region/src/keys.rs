//! Allocates ranges of keys, out of a fixed number.

use std::ops::Range;

use super::core::CHUNK;

/// Free ranges, in order and not touching each other; all begin at a multiple of [`CHUNK`].
#[derive(Debug)]
pub(super) struct Keys {
    free: Vec<Range<u32>>,
}

impl Keys {
    /// All of `0..count`, a multiple of [`CHUNK`].
    pub(super) fn new(count: u32) -> Self {
        Self { free: std::iter::once(0..count).collect() }
    }

    /// Takes the first `count` consecutive keys that are free.
    pub(super) fn take(&mut self, count: u32) -> Option<u32> {
        let count = count.checked_next_multiple_of(CHUNK)?;
        let at = self.free.iter().position(|range| range.end - range.start >= count)?;
        let range = &mut self.free[at];
        let first = range.start;
        range.start += count;
        if range.start == range.end {
            self.free.remove(at);
        }
        Some(first)
    }

    /// Returns keys that were taken together.
    pub(super) fn give(&mut self, first: u32, count: u32) {
        let end = first + count.next_multiple_of(CHUNK);
        let at = self.free.partition_point(|range| range.start < first);
        self.free.insert(at, first..end);
        // Join with the neighbours.
        for at in [at + 1, at] {
            if at > 0 && at < self.free.len() && self.free[at - 1].end == self.free[at].start {
                self.free[at - 1].end = self.free[at].end;
                self.free.remove(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_taken_from_the_front_and_join_when_given_back() {
        let mut keys = Keys::new(10 * CHUNK);
        let taken = [1, CHUNK + 1, CHUNK].map(|count| keys.take(count).unwrap());
        assert_eq!(taken, [0, CHUNK, 3 * CHUNK]);
        assert_eq!(keys.take(7 * CHUNK), None);
        keys.give(CHUNK, CHUNK + 1);
        assert_eq!(keys.take(2 * CHUNK), Some(CHUNK), "the first place that has them");
        keys.give(CHUNK, 2 * CHUNK);
        keys.give(3 * CHUNK, CHUNK);
        keys.give(0, 1);
        assert_eq!(keys.free.len(), 1);
        assert_eq!(keys.free[0], 0..10 * CHUNK);
    }
}
