//! Read-ahead: which pages to put in after one that was asked for.
//!
//! There is none until a fault follows the page before it, or continues where a window ended. Each
//! window is twice as long as the one before. The ends of a few windows are remembered, because
//! several processors of a guest read at the same time.

use std::ops::Range;

/// Lengths of the shortest and of the longest window, in units.
const FIRST: u64 = 4;
const LONGEST: u64 = 64;

/// Windows that are remembered.
const STREAMS: usize = 8;

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// The unit after the window; 0 if there is no window.
    end: u64,
    len: u64,
}

/// The windows of a guest.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    streams: [Stream; STREAMS],
    oldest: usize,
}

impl Ahead {
    /// Returns the units below `end` to put in after `unit`, which was asked for.
    pub(crate) fn window(&mut self, unit: u64, end: u64) -> Range<u64> {
        let continued = self.streams.iter_mut().find(|stream| stream.end == unit && unit > 0);
        let len = match &continued {
            Some(stream) => (stream.len * 2).clamp(FIRST, LONGEST),
            None => 0,
        };
        let window = unit + 1..(unit + 1 + len).min(end);
        let stream = Stream { end: window.end, len };
        match continued {
            Some(of) => *of = stream,
            None => {
                self.streams[self.oldest] = stream;
                self.oldest = (self.oldest + 1) % STREAMS;
            }
        }
        window
    }

    /// Moves the end of a window that continued to `end`.
    pub(crate) fn extend(&mut self, window: &Range<u64>, end: u64) {
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.end == window.end) {
            stream.end = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_double_where_faults_continue_them() {
        let mut ahead = Ahead::default();
        let (mut unit, mut lens) = (100, Vec::new());
        for _ in 0..6 {
            let window = ahead.window(unit, 1000);
            assert_eq!(window.start, unit + 1);
            lens.push(window.end - window.start);
            // Another reader, and one that jumps.
            ahead.window(5000 + 10 * unit, u64::MAX);
            unit = window.end;
        }
        assert_eq!(lens, [0, 4, 8, 16, 32, 64]);
    }

    #[test]
    fn a_window_ends_with_its_region_and_can_be_extended() {
        let mut ahead = Ahead::default();
        assert_eq!(ahead.window(9, 10), 10..10);
        let window = ahead.window(20, 100);
        ahead.extend(&window, 60);
        assert_eq!(ahead.window(60, 100), 61..65);
        assert_eq!(ahead.window(65, 68), 66..68);
        assert_eq!(ahead.window(0, 100), 1..1);
    }
}
