//! The heap: the single-threaded core. It finds, takes and gives back places in segments by best
//! fit, and knows neither objects nor handles nor locks; the bytes of a place are the caller's.
//!
//! Among thousands of holes there is nearly always one of the length that is wanted, so density
//! needs no moves while objects come and go. A place is taken in the first bin that fits, in its
//! lowest segment; only if no hole fits, one page more is committed, in the *open* segment.
//!
//! ```text
//!            extend                      take, give               give of the last place
//!   (arena) --------> used <=======================> used -------------------------> (arena)
//!                      |  ^                                                             ^
//!     begin_evacuation |  | end_evacuation, with places left                            |
//!                      v  |                                                             |
//!                     victim -----------------------------------------------------------+
//!                                    end_evacuation, with none
//! ```
//!
//! - F1: a segment's directory covers its committed pages (E1); `live` is the sum of its used
//!   extents, the heap's `live` that of all segments.
//! - F2: each hole of a used segment has its bit in [`Holes`]; a bit without a hole is a hint that
//!   whoever comes by it clears (B2).
//! - F3: nothing is taken in a victim; its used extents stay put until they are given back, and it
//!   leaves in `end_evacuation` only.
//! - F4: a used segment has a used extent; one without leaves at once.
//! - F5: an evacuation moves nothing before all places of its segment have another one reserved;
//!   what cannot be reserved leaves everything as it was, but for pages that were committed.
//! - F6: a segment that is fuller than [`FULL`] says is not evacuated.
//! - F7: a call that fails changes nothing. F8: `reserved` counts the moves that have two places.
//! - F9: the arena's used pages are those that the directories cover; `bytes` are all tables.
//!
//! Cost of taking or giving a place: a look at the bits, one segment's record and its directory.

use super::directory::{Directories, Directory, Extent, Found};
use super::holes::{Holes, bin_for, bin_of};
use super::place::{OBJECT_MAX, PAGE, Place, SEGMENT, SEGMENT_PAGES};
use crate::memory::arena::{Arena, Run};
use crate::memory::source::SourceError;
use crate::units::{FrameIndex, PageCount};

/// Pages of a segment, as the arena counts them.
const RUN_PAGES: u32 = SEGMENT_PAGES as u32;

/// The share of its committed granules, of a hundred, above which a segment is not worth its
/// evacuation.
const FULL: u64 = 97;

/// What an evacuation may take from fresh pages instead of holes, in granules: at most five pages,
/// where it frees eight.
const FRESH_MAX: u16 = SEGMENT / 2;

/// How a run of the arena is taken.
type TakeRun = fn(&mut Arena, u32) -> Result<Run, SourceError>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unused,
    Used,
    Victim,
}

/// The record of a segment.
#[derive(Clone, Copy, Debug)]
struct Segment {
    directory: Directory,
    live: u16,
    state: State,
}

impl Segment {
    const UNUSED: Self = Self { directory: Directory::NONE, live: 0, state: State::Unused };

    fn pages(&self) -> u16 {
        self.directory.end() / PAGE
    }

    /// F6.
    fn is_worth_evacuation(&self) -> bool {
        let limit = u64::from(self.directory.end()) * FULL / 100;
        self.state == State::Used && u64::from(self.live) <= limit
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Heap {
    pub(super) arena: Arena,
    segments: Vec<Segment>,
    directories: Directories,
    holes: Holes,
    /// The segment at whose end pages are committed.
    open: Option<u32>,
    segments_used: u64,
    /// Granules of all used extents.
    live: u64,
    /// Moves that have two places.
    reserved: u64,
    /// Granules that were given back since a compaction found nothing more to do.
    given: u64,
}

/// A segment that is being emptied: its places, the largest first, and the ones reserved for them.
#[derive(Debug)]
pub(crate) struct Evacuation {
    pub(crate) segment: u32,
    pub(crate) moves: Vec<Move>,
    /// Where to go on with the reservation; it goes over the moves twice.
    next: usize,
    /// Granules that found no hole.
    homeless: u32,
    /// Pages that the segment has.
    pages: u16,
    /// Pages that were committed for its objects.
    fresh_pages: u64,
}

/// A place that is left for another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    pub(crate) from: Place,
    pub(crate) granules: u16,
    pub(crate) to: Option<Place>,
}

/// How far a reservation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserved {
    /// Another call is needed.
    Some,
    /// Every move has a place.
    All,
    /// There is no room; what was reserved is to be given back.
    NoRoom,
}

impl Heap {
    /// Returns an empty heap, which has all runs of `arena`.
    pub(crate) fn new(arena: Arena) -> Self {
        Self {
            arena,
            segments: Vec::new(),
            directories: Directories::new(),
            holes: Holes::new(),
            open: None,
            segments_used: 0,
            live: 0,
            reserved: 0,
            given: 0,
        }
    }

    /// Bytes of the tables, without the arena's.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        let segments = self.segments.capacity() * size_of::<Segment>();
        (segments + self.directories.bytes() + self.holes.bytes()) as u64
    }

    #[inline]
    fn segment(&self, segment: u32) -> &Segment {
        &self.segments[segment as usize]
    }

    #[inline]
    fn segment_mut(&mut self, segment: u32) -> &mut Segment {
        &mut self.segments[segment as usize]
    }

    /// Takes a place of `granules`, at most those of the longest object.
    ///
    /// # Errors
    /// When no hole fits and the arena has no page.
    #[inline]
    pub(crate) fn take(&mut self, granules: u16) -> Result<Place, SourceError> {
        if let Some(place) = self.take_hole(granules) {
            return Ok(place);
        }
        self.extend(granules, Arena::take)?;
        Ok(self.take_tail(granules))
    }

    /// Takes a place in a hole, if one fits.
    #[inline]
    fn take_hole(&mut self, granules: u16) -> Option<Place> {
        let (bin, segment, found) = self.find(granules)?;
        if !found.more {
            self.holes.clear(bin, segment);
        }
        Some(self.take_found(segment, found, granules))
    }

    /// Returns the first bin with a hole that fits, its lowest segment, and the hole there.
    #[inline]
    fn find(&mut self, granules: u16) -> Option<(u16, u32, Found)> {
        debug_assert!((1..=OBJECT_MAX + 1).contains(&granules), "{granules}");
        let mut from = bin_for(granules);
        loop {
            let (bin, segment) = self.holes.first(from)?;
            if let Some(Segment { directory, state: State::Used, .. }) =
                self.segments.get(segment as usize)
                && let Some(found) = self.directories.find(directory, bin, bin_of)
            {
                return Some((bin, segment, found));
            }
            self.holes.clear(bin, segment);
            from = bin;
        }
    }

    #[inline]
    fn take_found(&mut self, segment: u32, found: Found, granules: u16) -> Place {
        let record = &mut self.segments[segment as usize];
        let (at, taken, left) = self.directories.take(&mut record.directory, found, granules);
        record.live += taken;
        self.live += u64::from(taken);
        if left > 0 {
            self.holes.set(bin_of(left), segment);
        }
        Place { segment, at }
    }

    /// Takes a place at the end of the open segment, which [`Heap::extend`] has made room in.
    fn take_tail(&mut self, granules: u16) -> Place {
        let open = self.open.expect("extended");
        let (found, _) = self.directories.tail(&self.segment(open).directory).expect("extended");
        self.take_found(open, found, granules)
    }

    /// Commits pages until the open segment has room for `granules` at its end, or opens another,
    /// whose run `take_run` takes.
    #[cold]
    fn extend(&mut self, granules: u16, take_run: TakeRun) -> Result<(), SourceError> {
        if let Some(open) = self.open {
            let Segment { directory, .. } = self.segment(open);
            let tail = self.directories.tail(directory).map_or(0, |(_, len)| len);
            let missing = granules.saturating_sub(tail).div_ceil(PAGE);
            let pages = self.segment(open).pages() + missing;
            if pages <= SEGMENT_PAGES {
                let mut run = self.run(open);
                self.arena.commit(&mut run, pages.into())?;
                self.cover(open, run);
                return Ok(());
            }
        }
        let mut run = take_run(&mut self.arena, RUN_PAGES)?;
        let pages = u32::from(granules.div_ceil(PAGE));
        if let Err(error) = self.arena.commit(&mut run, pages) {
            self.arena.put(run, RUN_PAGES);
            return Err(error);
        }
        let segment = run.first.0 / RUN_PAGES;
        debug_assert!(run.first.0.is_multiple_of(RUN_PAGES), "all runs have one length");
        self.add(segment);
        self.cover(segment, run);
        self.open = Some(segment);
        Ok(())
    }

    /// The run of frames that a segment is.
    fn run(&self, segment: u32) -> Run {
        let first = FrameIndex(segment * RUN_PAGES);
        Run { first, committed: self.segment(segment).pages().into() }
    }

    /// Makes the record of a segment that covers nothing yet.
    fn add(&mut self, segment: u32) {
        let at = segment as usize;
        if at >= self.segments.len() {
            // In small steps, so that the table costs about what it holds.
            let more = at + 1 - self.segments.len();
            if self.segments.capacity() <= at {
                self.segments.reserve_exact(more.max(self.segments.len() / 16).max(16));
            }
            self.segments.resize(at + 1, Segment::UNUSED);
            self.holes.cover(at + 1);
        }
        debug_assert_eq!(self.segment(segment).state, State::Unused);
        let directory = self.directories.open();
        self.segments[at] = Segment { directory, live: 0, state: State::Used };
        self.segments_used += 1;
    }

    /// Has a segment's directory cover the committed pages of its run.
    fn cover(&mut self, segment: u32, run: Run) {
        let end = run.committed as u16 * PAGE;
        let record = &mut self.segments[segment as usize];
        if end > record.directory.end() {
            self.directories.extend(&mut record.directory, end);
            let (_, len) = self.directories.tail(&record.directory).expect("just extended");
            self.holes.set(bin_of(len), segment);
        }
    }

    /// Gives a place back; a segment without any other leaves (F4).
    ///
    /// # Panics
    /// If the place is not taken.
    #[inline]
    pub(crate) fn give(&mut self, place: Place) {
        let record = &mut self.segments[place.segment as usize];
        let (given, hole) = self.directories.give(&mut record.directory, place.at);
        record.live -= given;
        self.live -= u64::from(given);
        self.given += u64::from(given);
        if record.state == State::Victim {
            return;
        }
        if record.live == 0 {
            self.release(place.segment);
        } else {
            self.holes.set(bin_of(hole), place.segment);
        }
    }

    /// Lets a segment without used extents go; returns its pages.
    #[cold]
    fn release(&mut self, segment: u32) -> u16 {
        let run = self.run(segment);
        let record = std::mem::replace(self.segment_mut(segment), Segment::UNUSED);
        debug_assert_eq!(record.live, 0, "F3, F4");
        self.directories.close(record.directory);
        self.arena.put(run, RUN_PAGES);
        self.segments_used -= 1;
        self.open = self.open.filter(|&open| open != segment);
        record.pages()
    }
}

impl Heap {
    /// Returns a number above those of all segments.
    pub(crate) fn segments(&self) -> u32 {
        self.segments.len() as u32
    }

    /// Returns the granules of the used extents of a segment, if it is worth its evacuation.
    #[inline]
    pub(crate) fn worth_evacuation(&self, segment: u32) -> Option<u16> {
        let record = self.segments.get(segment as usize)?;
        record.is_worth_evacuation().then_some(record.live)
    }

    /// Takes a segment out of allocation, if it is worth its evacuation.
    pub(crate) fn begin_evacuation(&mut self, segment: u32) -> Option<Evacuation> {
        self.worth_evacuation(segment)?;
        let record = &mut self.segments[segment as usize];
        record.state = State::Victim;
        let used = self.directories.extents(&record.directory).filter(|extent| !extent.free);
        let new_move = |Extent { at, len, .. }| {
            let from = Place { segment, at };
            Move { from, granules: len, to: None }
        };
        let mut moves: Vec<_> = used.map(new_move).collect();
        moves.sort_unstable_by_key(|of| std::cmp::Reverse(of.granules));
        let pages = record.pages();
        self.open = self.open.filter(|&open| open != segment);
        Some(Evacuation { segment, moves, next: 0, homeless: 0, pages, fresh_pages: 0 })
    }

    /// Reserves places for up to `count` more moves: holes first, then, if that pays, fresh pages
    /// for those that found none.
    pub(crate) fn reserve(&mut self, evacuation: &mut Evacuation, count: usize) -> Reserved {
        let len = evacuation.moves.len();
        for _ in 0..count {
            if evacuation.next == 2 * len || evacuation.next == len && evacuation.homeless == 0 {
                return Reserved::All;
            }
            let in_holes = evacuation.next < len;
            let Move { granules, to, .. } = evacuation.moves[evacuation.next % len];
            evacuation.next += 1;
            if to.is_some() {
                continue;
            }
            let place = match self.take_hole(granules) {
                None if in_holes => {
                    evacuation.homeless += u32::from(granules);
                    let pays = evacuation.homeless <= FRESH_MAX.into();
                    if !pays || evacuation.pages < SEGMENT_PAGES {
                        return Reserved::NoRoom;
                    }
                    None
                }
                None => {
                    let before = self.arena.used().0;
                    // A warm run would cost eight pages at once.
                    if self.extend(granules, Arena::take_cold).is_err() {
                        return Reserved::NoRoom;
                    }
                    evacuation.fresh_pages += self.arena.used().0 - before;
                    Some(self.take_tail(granules))
                }
                found => found,
            };
            self.reserved += u64::from(place.is_some());
            evacuation.moves[(evacuation.next - 1) % len].to = place;
        }
        Reserved::Some
    }

    /// Gives back one of the two places of a move: the old one, or the new one if nothing moved.
    pub(crate) fn give_either(&mut self, place: Place) {
        self.reserved -= 1;
        self.give(place);
    }

    /// Returns how many moves have two places.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Ends an evacuation, whose reserved places are given back or used: without places the
    /// segment leaves, otherwise it is used again. Returns the pages freed, less those that were
    /// committed for it.
    pub(crate) fn end_evacuation(&mut self, evacuation: &Evacuation) -> i64 {
        let segment = evacuation.segment;
        let fresh = evacuation.fresh_pages as i64;
        if self.segment(segment).live == 0 {
            return i64::from(self.release(segment)) - fresh;
        }
        self.segment_mut(segment).state = State::Used;
        if self.segment(segment).pages() < SEGMENT_PAGES {
            self.open.get_or_insert(segment);
        }
        let extents = self.directories.extents(&self.segments[segment as usize].directory);
        for hole in extents.filter(|extent| extent.free) {
            self.holes.set(bin_of(hole.len), segment);
        }
        -fresh
    }

    /// Returns the pages that a compaction could free, by an estimate: those that the used extents
    /// would leave if they filled the others to [`FULL`], but no more than were given back since
    /// the last compaction.
    pub(crate) fn freeable_pages(&self) -> PageCount {
        let needed = (self.live * 100).div_ceil(u64::from(SEGMENT) * FULL);
        let spare = self.segments_used.saturating_sub(needed);
        PageCount(spare.min(self.given / u64::from(SEGMENT)) * u64::from(SEGMENT_PAGES))
    }

    /// Notes that a compaction found nothing more to do.
    pub(crate) fn settle(&mut self) {
        self.given = 0;
    }

    /// Gives back what tables have too much.
    ///
    /// # Cost
    /// In proportion to what is left of them, if that is less than half.
    pub(crate) fn trim(&mut self) {
        self.arena.trim();
        let used = self.segments.iter().rposition(|record| record.state != State::Unused);
        let segments = used.map_or(0, |last| last + 1);
        self.segments.truncate(segments);
        self.segments.shrink_to(segments + segments / 16);
        self.holes.trim(segments);
        let in_use = self.segments.iter_mut().filter(|record| record.state != State::Unused);
        self.directories.trim(in_use.map(|record| &mut record.directory));
    }

    /// Returns whether a place is taken.
    pub(crate) fn is_taken(&self, place: Place) -> bool {
        let record = self.segments.get(place.segment as usize);
        record.is_some_and(|record| {
            record.state != State::Unused && self.directories.is_used(&record.directory, place.at)
        })
    }

    /// Asserts F1 to F4 and F9; returns how many places are taken.
    ///
    /// # Panics
    /// If one is broken.
    pub(crate) fn check(&self) -> u64 {
        self.arena.check();
        self.holes.check();
        let in_use = || (0..).zip(&self.segments).filter(|(_, s)| s.state != State::Unused);
        self.directories.check_table(in_use().map(|(_, record)| &record.directory));
        let (mut places, mut live, mut pages) = (0, 0, 0);
        for (segment, record) in in_use() {
            self.directories.check(&record.directory);
            let mut sum = 0;
            for extent in self.directories.extents(&record.directory) {
                if !extent.free {
                    places += 1;
                    sum += extent.len;
                } else if record.state == State::Used {
                    assert!(self.holes.has(bin_of(extent.len), segment), "F2: {extent:?}");
                }
            }
            assert_eq!(sum, record.live, "F1: live of segment {segment}");
            assert!(sum > 0 || record.state == State::Victim, "F4: segment {segment} is empty");
            assert!(record.directory.end().is_multiple_of(PAGE), "F9: segment {segment}");
            live += u64::from(sum);
            pages += u64::from(record.pages());
        }
        assert_eq!(live, self.live, "F1: live");
        assert_eq!(PageCount(pages), self.arena.used(), "F9: pages");
        assert_eq!(in_use().count() as u64, self.segments_used, "F9: segments");
        let open = self.open.map(|open| self.segment(open).state);
        assert!(open.is_none_or(|state| state == State::Used), "F3: the open segment");
        places
    }
}
