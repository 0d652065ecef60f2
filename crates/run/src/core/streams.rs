//! Recognises sequences of faults, so that the following pages can be read ahead. Programs build
//! lists upwards and often take them apart downwards, and they walk through a column of a table in
//! steps.
//!
//! A window doubles with each fault that follows. Its limit depends on how many of the pages that
//! were recently read ahead belonged to sequences that continued: when a sequence ends, its last
//! window was wasted.
//!
//! How far sequences reach says whether their pages can still be resident when they are touched in
//! the same order again. A sequence that has ended is remembered until some hundred others have
//! ended, too.

use super::ranges::{PageNo, Pages};
use zfold_uffd::page::pages_in;

/// Sequences that are followed at the same time.
const STREAMS: usize = 8;

/// Bytes that a fault reads ahead at most, and at most while nearly all of them are wasted.
const WINDOW_BYTES_MAX: usize = 512 << 10;
const WINDOW_BYTES_MIN: usize = 32 << 10;

/// The number of recent read-ahead pages over which the share of useful ones is computed.
const REMEMBERED: usize = 2048;

/// Other faults that a sequence survives, for each page of its window.
const PATIENCE: u64 = 4;

/// The part of what is remembered of the longest sequence that each one that ends takes off.
const FADES: usize = 64;

/// Most pages from one fault to the next that count as a step of a sequence.
const STEP_MAX: isize = 64;

/// Returns the most pages that a fault reads ahead.
pub(crate) fn window_max() -> usize {
    pages_in(WINDOW_BYTES_MAX)
}

/// Sequences of faults in one address space.
#[derive(Debug, Clone, Default)]
pub(crate) struct Streams {
    streams: [Stream; STREAMS],
    /// Faults so far.
    now: u64,
    /// Pages read ahead by faults that others followed, and by the last faults of sequences.
    used: usize,
    unused: usize,
    /// How far the longest of the sequences reached that have ended, less with each that ends.
    longest: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Stream {
    /// The page of its last fault.
    page: PageNo,
    way: Way,
    /// The page at which it continues, if its step is known.
    next: PageNo,
    /// Most steps that one of its faults has covered; 0: this sequence is unused.
    window: usize,
    /// Steps that the last fault should cover and has covered, and the pages that it read ahead.
    target: usize,
    done: usize,
    brought: usize,
    /// Steps that all its faults have covered.
    reach: usize,
    /// When it last continued.
    last: u64,
}

/// The step of a sequence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Way {
    /// There was one fault.
    #[default]
    Unknown,
    /// There were two, this many pages apart; a third has to follow.
    Guessed(isize),
    /// The step is known.
    Known(isize),
}

impl Stream {
    /// Returns the step of this sequence if a fault at `page` continues it.
    fn follows(&self, page: PageNo) -> Option<Way> {
        let step = page.wrapping_sub(self.page).cast_signed();
        let ahead = page.wrapping_sub(self.next).cast_signed();
        let follows = match self.way {
            _ if self.window == 0 => return None,
            Way::Known(known) => {
                // The pages between may have been present.
                let most = if known.abs() == 1 { self.window.cast_signed() / 2 } else { 0 };
                return (0..=most).contains(&(ahead * known.signum())).then_some(self.way);
            }
            Way::Guessed(guessed) => step == guessed || step.abs() == 1,
            Way::Unknown => step.abs() == 1,
        };
        follows.then_some(Way::Known(step))
    }

    /// Returns the step that this sequence may have if a fault at `page` belongs to it.
    fn may_follow(&self, page: PageNo) -> Option<Way> {
        let step = page.wrapping_sub(self.page).cast_signed();
        let may = self.window > 0 && !matches!(self.way, Way::Known(_));
        (may && step != 0 && step.unsigned_abs() <= STEP_MAX.unsigned_abs())
            .then_some(Way::Guessed(step))
    }

    /// Returns the time until which no other sequence replaces this one.
    fn patience(&self) -> u64 {
        if self.window == 0 { 0 } else { self.last + PATIENCE * self.window as u64 }
    }
}

impl Streams {
    /// Returns which pages to fill in for a fault at `page`, at most `max`: this one, and twice as
    /// many as last time while faults follow page by page.
    pub(crate) fn window(&self, page: PageNo, max: usize) -> Pages {
        let Some((at, Way::Known(step @ (1 | -1)))) = self.find(page) else {
            return page..page + 1;
        };
        let len = self.target(at).clamp(1, max.max(1));
        if step > 0 { page..page + len } else { (page + 1).saturating_sub(len)..page + 1 }
    }

    /// Records that the fault at `page` filled in `pages`.
    pub(crate) fn filled(&mut self, page: PageNo, pages: &Pages) {
        self.now += 1;
        let (at, way, target) = match self.find(page) {
            Some((at, way)) => {
                self.used += self.streams[at].brought.saturating_sub(1);
                (at, way, self.target(at))
            }
            None => {
                let begun = self.streams.iter().enumerate();
                let oldest = begun.min_by_key(|(_, stream)| stream.patience());
                let at = oldest.map_or(0, |(at, _)| at);
                self.unused += self.streams[at].brought.saturating_sub(1);
                self.longest -= self.longest.div_ceil(FADES);
                self.longest = self.longest.max(self.streams[at].reach);
                self.streams[at] = Stream::default();
                (at, Way::Unknown, 1)
            }
        };
        if self.used + self.unused > REMEMBERED {
            (self.used, self.unused) = (self.used / 2, self.unused / 2);
        }
        let (next, done) = match way {
            Way::Unknown | Way::Guessed(_) => (page, 1),
            Way::Known(1) => (pages.end, pages.end - page),
            Way::Known(-1) => (pages.start.wrapping_sub(1), page + 1 - pages.start),
            Way::Known(step) => (page.wrapping_add_signed(step), 1),
        };
        let target = if matches!(way, Way::Known(_)) { target } else { 1 };
        let window = self.streams[at].window.max(done).min(self.most());
        let (brought, last, reach) = (done, self.now, self.streams[at].reach + done);
        self.streams[at] = Stream { page, way, next, window, target, done, brought, reach, last };
    }

    /// For the sequence whose last fault was at `page`, returns its next page, its step, and how
    /// many more steps it should cover; `None` if it has covered enough.
    pub(crate) fn ahead(&self, page: PageNo) -> Option<(PageNo, isize, usize)> {
        let stream = self.streams.iter().find(|stream| stream.page == page && stream.window > 0)?;
        let Way::Known(step) = stream.way else { return None };
        let left = stream.target.saturating_sub(stream.done);
        (left > 0).then_some((stream.next, step, left))
    }

    /// Records that the sequence whose last fault was at `page` has covered `steps` more steps, and
    /// brings `brought` pages of them.
    pub(crate) fn went(&mut self, page: PageNo, steps: usize, brought: usize) {
        let most = self.most();
        let mut streams = self.streams.iter_mut();
        if let Some(stream) = streams.find(|stream| stream.page == page && stream.window > 0)
            && let Way::Known(step) = stream.way
        {
            stream.next = stream.next.wrapping_add_signed(step * steps.cast_signed());
            stream.done += steps;
            stream.reach += steps;
            stream.brought += brought;
            stream.window = stream.window.max(stream.done).min(most);
        }
    }

    /// Returns how many pages the sequence has covered that a fault at `page` belongs to, or one
    /// that ended lately.
    pub(crate) fn reach(&self, page: PageNo) -> usize {
        let last = self.streams.iter().find(|stream| stream.page == page && stream.window > 0);
        let next = || self.find(page).map(|(at, _)| &self.streams[at]);
        last.or_else(next).map_or(0, |stream| stream.reach).max(self.longest)
    }

    /// Returns how many steps the next fault of a sequence should cover.
    fn target(&self, at: usize) -> usize {
        (self.streams[at].window * 2).min(self.most())
    }

    /// Returns the most steps that the next fault of any sequence should cover.
    fn most(&self) -> usize {
        let all = self.used + self.unused;
        pages_in(match (self.used * 8).checked_div(all) {
            None | Some(7..) => WINDOW_BYTES_MAX,
            Some(6) => WINDOW_BYTES_MAX / 2,
            Some(4 | 5) => WINDOW_BYTES_MAX / 4,
            Some(2 | 3) => WINDOW_BYTES_MAX / 8,
            Some(0 | 1) => WINDOW_BYTES_MIN,
        })
    }

    /// Returns the sequence that a fault at `page` continues, or may continue, and its step then.
    fn find(&self, page: PageNo) -> Option<(usize, Way)> {
        let way = |of: fn(&Stream, PageNo) -> Option<Way>| {
            let mut streams = self.streams.iter().enumerate();
            streams.find_map(|(at, stream)| Some((at, of(stream, page)?)))
        };
        way(Stream::follows).or_else(|| way(Stream::may_follow))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of the largest window: 128 of 4 KiB.
    fn largest() -> usize {
        pages_in(512 << 10)
    }

    /// Simulates a fault at a page, which reads ahead as far as it should, at most 16 pages at a
    /// time; returns how many pages it brought.
    fn fault(streams: &mut Streams, page: PageNo) -> usize {
        let window = streams.window(page, 16);
        assert!(window.contains(&page));
        streams.filled(page, &window);
        let mut brought = window.len();
        while let Some((_, _, left)) = streams.ahead(page) {
            streams.went(page, left.min(16), left.min(16));
            brought += left.min(16);
        }
        brought
    }

    #[test]
    fn windows_double_while_faults_follow_each_other() {
        for way in [1, -1, 7, -64] {
            let mut streams = Streams::default();
            let mut page: PageNo = 100_000;
            let mut windows = Vec::new();
            for _ in 0..11 {
                let window = fault(&mut streams, page);
                windows.push(window);
                page = page.wrapping_add_signed(way * window.cast_signed());
            }
            // Other steps are known only after a third fault.
            let unknown = if way.abs() == 1 { 0 } else { 1 };
            let doubled = |at: usize| largest().min(1 << at.saturating_sub(unknown));
            let expected: Vec<_> = (0..11).map(doubled).collect();
            assert_eq!(windows, expected, "in steps of {way}");
            assert_eq!(fault(&mut streams, page + 1000), 1, "it is not of it");
            assert_eq!(fault(&mut streams, page), largest(), "it goes on");
        }
    }

    #[test]
    fn the_ends_of_memory_are_no_obstacle() {
        let mut streams = Streams::default();
        streams.filled(1, &(1..2));
        assert_eq!(streams.window(0, 16), 0..1);
        streams.filled(0, &(0..1));
        assert_eq!(streams.window(PageNo::MAX - 1, 16).len(), 1, "there is no page below");
        assert_eq!(fault(&mut streams, 5), 1);
    }

    #[test]
    fn what_was_there_on_the_way_does_not_end_a_sequence() {
        let mut streams = Streams::default();
        streams.filled(10, &(10..11));
        streams.filled(11, &(11..13));
        streams.filled(13, &(13..17));
        // Cut short by pages that were present; the next fault comes behind them.
        streams.filled(17, &(17..18));
        assert_eq!(streams.window(18, 16), 18..26);
        assert_eq!(streams.window(20, 16), 20..28);
        assert_eq!(streams.window(21, 16).len(), 1, "too far");
    }

    #[test]
    fn several_sequences_are_followed_at_a_time() {
        let mut streams = Streams::default();
        let mut pages = [0, 10_000, 20_000, 30_000];
        for round in 0..4 {
            for page in &mut pages {
                let window = fault(&mut streams, *page);
                assert_eq!(window, 1 << round);
                *page += window;
            }
        }
    }

    #[test]
    fn a_sequence_outlives_faults_elsewhere() {
        let mut streams = Streams::default();
        let mut page = 0;
        for round in 0..20 {
            let window = fault(&mut streams, page);
            assert_eq!(window, largest().min(1 << round));
            page += window;
            // Half as many as it survives.
            for other in 0..2 * window {
                fault(&mut streams, 1_000_000 + 1000 * (other + 200 * round));
            }
        }
    }

    #[test]
    fn sequences_that_end_soon_have_small_windows() {
        let mut streams = Streams::default();
        let mut runs = |len: PageNo, from: PageNo| {
            let (mut all, mut most) = (0, 0);
            for run in 0..400 {
                let begin = from + run * 10_000;
                let mut page = begin;
                while page < begin + len {
                    let window = fault(&mut streams, page);
                    (all, most) = (all + window, most.max(window));
                    page += window;
                }
            }
            (all as f64 / (400 * len) as f64, most)
        };
        let (brought, _) = runs(20, 0);
        assert!(brought < 1.6, "{brought} for each page that is used");
        let (brought, most) = runs(2000, 100_000_000);
        assert!(brought < 1.1 && most == largest(), "{brought}, {most}");
    }

    #[test]
    fn a_sequence_is_remembered_until_many_others_have_ended() {
        let mut streams = Streams::default();
        let mut page: PageNo = 100_000;
        while page < 102_000 {
            page += fault(&mut streams, page);
        }
        let last = streams.streams.iter().map(|stream| stream.page).max().unwrap();
        let reach = streams.reach(last);
        assert!((2000..2000 + largest()).contains(&reach), "{reach}");
        assert_eq!(streams.reach(page), reach, "it goes on");
        assert_eq!(streams.reach(500_000), 0, "another");
        // As many as replace all that are followed, whose patience is as long as their windows.
        let others = |streams: &mut Streams, from: usize, count: usize| {
            (from..from + count).for_each(|n| _ = fault(streams, 1_000_000 + n * 1000));
        };
        others(&mut streams, 0, 600);
        assert!(streams.reach(500_000) > reach / 64, "{}", streams.reach(500_000));
        others(&mut streams, 600, 1000);
        assert!(streams.reach(500_000) < 64, "{}", streams.reach(500_000));
    }
}
