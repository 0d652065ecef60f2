//! Which faults follow each other, so that what comes next can be filled in with them. Upwards is
//! how programs build lists, downwards how many of them take these apart.

use super::ranges::{PageNo, Pages};

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
    /// The page whose fault would continue it upwards, and downwards. Both are pages while there
    /// was one fault only; then the way is known, and the other is none.
    next: [PageNo; 2],
    /// Pages that a fault of it has filled in, at most.
    window: usize,
}

const UP: usize = 0;
const DOWN: usize = 1;
const NO_PAGE: PageNo = PageNo::MAX;

impl Streams {
    /// Returns which pages to fill in for a fault at `page`, at most `max`: this one, and twice as
    /// many as the last time while faults follow each other.
    pub(crate) fn window(&self, page: PageNo, max: usize) -> Pages {
        let Some((at, way)) = self.find(page) else { return page..page + 1 };
        let len = (self.streams[at].window * 2).clamp(1, max.max(1));
        if way == UP { page..page + len } else { (page + 1).saturating_sub(len)..page + 1 }
    }

    /// Notes that the fault at `page` filled in `pages`.
    pub(crate) fn filled(&mut self, page: PageNo, pages: &Pages) {
        let mut next = [pages.end, pages.start.checked_sub(1).unwrap_or(NO_PAGE)];
        let (at, window) = match self.find(page) {
            Some((at, way)) => {
                next[1 - way] = NO_PAGE;
                (at, self.streams[at].window)
            }
            None => {
                self.turn = (self.turn + 1) % STREAMS;
                (self.turn, 0)
            }
        };
        self.streams[at] = Stream { next, window: window.max(pages.len()) };
    }

    /// Returns the sequence that a fault at `page` continues, and which way.
    fn find(&self, page: PageNo) -> Option<(usize, usize)> {
        let streams = self.streams.iter().enumerate().filter(|(_, stream)| stream.window > 0);
        let mut ways =
            streams.flat_map(|(at, stream)| [UP, DOWN].map(|way| (at, way, stream.next[way])));
        ways.find(|(_, _, next)| *next == page).map(|(at, way, _)| (at, way))
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
            streams.filled(page, &window);
            windows.push(window.len());
            page = window.end;
        }
        assert_eq!(windows, [1, 2, 4, 8, 16, 16]);
        assert_eq!(streams.window(page + 1, 16).len(), 1, "not the next page");
    }

    #[test]
    fn windows_double_downwards_too() {
        let mut streams = Streams::default();
        let (mut page, mut windows) = (1000, Vec::new());
        for _ in 0..6 {
            let window = streams.window(page, 16);
            assert_eq!(window.end, page + 1);
            streams.filled(page, &window);
            windows.push(window.len());
            page = window.start - 1;
        }
        assert_eq!(windows, [1, 2, 4, 8, 16, 16]);
        assert_eq!(streams.window(1001, 16).len(), 1, "it goes the other way");
        // The lowest pages.
        streams.filled(1, &(1..2));
        assert_eq!(streams.window(0, 16), 0..1);
        streams.filled(0, &(0..1));
        assert_eq!(streams.window(PageNo::MAX - 1, 16).len(), 1, "there is no page below");
    }

    #[test]
    fn one_page_from_elsewhere_does_not_begin_anew() {
        let mut streams = Streams::default();
        streams.filled(10, &(10..11));
        streams.filled(11, &(11..13));
        streams.filled(13, &(13..17));
        streams.filled(17, &(17..18));
        assert_eq!(streams.window(18, 16), 18..26);
    }

    #[test]
    fn several_sequences_are_followed_at_a_time() {
        let mut streams = Streams::default();
        let mut pages = [0, 10_000, 20_000, 30_000];
        for round in 0..4 {
            for page in &mut pages {
                let window = streams.window(*page, 64);
                assert_eq!(window.len(), 1 << round);
                streams.filled(*page, &window);
                *page = window.end;
            }
        }
    }
}
