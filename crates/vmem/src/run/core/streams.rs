//! Which faults follow each other, so that what comes next can be filled in with them.

use super::ranges::PageNo;

/// Sequences that are followed at a time.
const STREAMS: usize = 4;

/// Sequences of faults in one address space.
#[derive(Debug, Clone, Default)]
pub(crate) struct Streams {
    streams: [Stream; STREAMS],
    /// The one that is given up next.
    turn: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Stream {
    /// The page whose fault would continue it.
    next: PageNo,
    /// Pages that the last fault filled in.
    window: usize,
}

impl Streams {
    /// Returns how many pages to fill in for a fault, at most `max`: one, and twice as many as
    /// the last time while faults follow each other.
    pub(crate) fn window(&mut self, page: PageNo, max: usize) -> usize {
        self.find(page).map_or(1, |at| self.streams[at].window * 2).clamp(1, max.max(1))
    }

    /// Notes that the fault at `page` filled in `filled` pages.
    pub(crate) fn filled(&mut self, page: PageNo, filled: usize) {
        let at = self.find(page).unwrap_or_else(|| {
            self.turn = (self.turn + 1) % STREAMS;
            self.turn
        });
        self.streams[at] = Stream { next: page + filled, window: filled };
    }

    fn find(&self, page: PageNo) -> Option<usize> {
        self.streams.iter().position(|stream| stream.window > 0 && stream.next == page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_double_while_faults_follow_each_other() {
        let mut streams = Streams::default();
        let mut page = 1000;
        let mut windows = Vec::new();
        for _ in 0..6 {
            let window = streams.window(page, 16);
            streams.filled(page, window);
            windows.push(window);
            page += window;
        }
        assert_eq!(windows, [1, 2, 4, 8, 16, 16]);
        assert_eq!(streams.window(page + 1, 16), 1, "not the next page");
    }

    #[test]
    fn several_sequences_are_followed_at_a_time() {
        let mut streams = Streams::default();
        let mut pages = [0, 10_000, 20_000, 30_000];
        for round in 0..4 {
            for page in &mut pages {
                let window = streams.window(*page, 64);
                assert_eq!(window, 1 << round);
                streams.filled(*page, window);
                *page += window;
            }
        }
    }
}
