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
//! - F1: a segment's directory covers its committed pages (directory/E1); `live` is the sum of its
//!   used extents, the heap's `live` that of all segments.
//! - F2: each hole of a used segment has its bit in [`Holes`]; a bit without a hole is a hint,
//!   cleared by the next search that finds it (holes/B2).
//! - F3: nothing is taken in a victim; its used extents stay put until they are given back, and it
//!   leaves in `end_evacuation` only.
//! - F4: a used segment has a used extent; one without leaves at once.
//! - F5: an evacuation moves nothing before all places of its segment have another one reserved;
//!   what cannot be reserved leaves everything as it was, but for pages that were committed.
//! - F6: a segment that is fuller than [`FULL`] says is not evacuated.
//! - F7: a call that fails changes nothing.
//! - F8: `reserved` counts the moves that have two places.
//! - F9: the arena's used pages are those that the directories cover; `bytes` are all tables.
//!
//! Cost of taking or giving a place: a look at the bits, one segment's record and its directory.

pub(crate) mod evacuation;

use super::directory::{Directories, Directory, Found, Taker};
use super::holes::{Holes, bin_of, lens_of};
use super::place::{OBJECT_MAX, PAGE, Place, SEGMENT, SEGMENT_PAGES};
use crate::memory::arena::{Arena, Run};
use crate::memory::source::SourceError;
use crate::units::{FrameIndex, PageCount};

/// Pages of a segment, as the arena counts them.
const RUN_PAGES: u32 = SEGMENT_PAGES as u32;

/// The share of its committed granules, of a hundred, above which a segment is not worth its
/// evacuation.
const FULL: u64 = 97;

/// See [`Heap::is_loose`].
const LOOSE: u64 = 16;

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
    /// Granules that were given back, but by moves, since a compaction found nothing more to do.
    given: u64,
    /// With fewer granules in use the heap is loose; it follows from the pages.
    live_min: u64,
    /// Pages or tables may have become more or fewer since [`Heap::note_sizes`].
    resized: bool,
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
            live_min: 0,
            resized: false,
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

    /// Takes a place for an object of `granules`, at most those of the longest; `None` if no hole
    /// fits and `grow` says no.
    ///
    /// # Errors
    /// When no hole fits and the arena has no page.
    #[inline]
    pub(crate) fn take(
        &mut self,
        granules: u16,
        grow: impl FnOnce() -> bool,
    ) -> Result<Option<Place>, SourceError> {
        let object = Taker::Object(granules);
        let place = self.take_hole(object);
        if place.is_some() || !grow() {
            return Ok(place);
        }
        self.extend(granules, Arena::take)?;
        Ok(Some(self.take_tail(object)))
    }

    /// Takes a place in a hole, if one fits.
    #[inline]
    fn take_hole(&mut self, taker: Taker) -> Option<Place> {
        let (bin, segment, found) = self.find(taker.granules())?;
        if !found.more {
            self.holes.clear(bin, segment);
        }
        Some(self.take_found(segment, found, taker))
    }

    /// Returns the first bin with a hole that fits, its lowest segment, and the hole there.
    #[inline]
    fn find(&mut self, granules: u16) -> Option<(u16, u32, Found)> {
        debug_assert!((1..=OBJECT_MAX + 1).contains(&granules), "{granules}");
        let mut from = bin_of(granules);
        loop {
            let (bin, segment) = self.holes.first(from)?;
            if let Some(Segment { directory, state: State::Used, .. }) =
                self.segments.get(segment as usize)
                && let Some(found) = self.directories.find(directory, lens_of(bin))
            {
                return Some((bin, segment, found));
            }
            self.holes.clear(bin, segment);
            from = bin;
        }
    }

    #[inline]
    fn take_found(&mut self, segment: u32, found: Found, taker: Taker) -> Place {
        let record = &mut self.segments[segment as usize];
        let (at, taken, left) = self.directories.take(&mut record.directory, found, taker);
        record.live += taken;
        self.live += u64::from(taken);
        if left > 0 {
            self.holes.set(bin_of(left), segment);
        }
        Place { segment, at }
    }

    /// Takes a place at the end of the open segment, which [`Heap::extend`] has made room in.
    fn take_tail(&mut self, taker: Taker) -> Place {
        let open = self.open.expect("extended");
        let (found, _) = self.directories.tail(&self.segment(open).directory).expect("extended");
        self.take_found(open, found, taker)
    }

    /// Commits pages until the open segment has room for `granules` at its end, or opens another,
    /// whose run `take_run` takes.
    #[cold]
    fn extend(&mut self, granules: u16, take_run: TakeRun) -> Result<(), SourceError> {
        self.resized = true;
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
        self.set_live_min();
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
        self.resized = true;
        let run = self.run(segment);
        let record = std::mem::replace(self.segment_mut(segment), Segment::UNUSED);
        debug_assert_eq!(record.live, 0, "F3, F4");
        self.directories.close(record.directory);
        self.arena.put(run, RUN_PAGES);
        self.set_live_min();
        self.segments_used -= 1;
        self.open = self.open.filter(|&open| open != segment);
        record.pages()
    }
}

impl Heap {
    /// Returns whether pages or tables may have become more or fewer since [`Heap::note_sizes`].
    #[inline]
    pub(crate) fn is_resized(&self) -> bool {
        self.resized || self.directories.is_resized()
    }

    /// Notes that their sizes are known.
    pub(crate) fn note_sizes(&mut self) {
        self.resized = false;
        self.directories.note_size();
    }

    /// Follows a change of the pages.
    fn set_live_min(&mut self) {
        let pages = self.arena.used().0 * u64::from(PAGE);
        self.live_min = pages.saturating_sub(u64::from(SEGMENT).max(pages / LOOSE));
    }

    /// Returns whether so many of the pages are holes that others should fill them before they take
    /// pages of their own: more than one part in [`LOOSE`], and more than a segment.
    #[inline]
    pub(crate) fn is_loose(&self) -> bool {
        self.live < self.live_min
    }

    /// Returns a number above those of all segments.
    pub(crate) fn segments(&self) -> u32 {
        self.segments.len() as u32
    }

    /// Returns the pages that a compaction could free, by an estimate: those that the used extents
    /// would leave if they filled the others to [`FULL`], but no more than were given back since
    /// a compaction found nothing more to do.
    pub(crate) fn freeable_pages(&self) -> PageCount {
        let needed = (self.live * 100).div_ceil(u64::from(SEGMENT) * FULL);
        let spare = self.segments_used.saturating_sub(needed);
        PageCount(spare.min(self.given / u64::from(SEGMENT)) * u64::from(SEGMENT_PAGES))
    }

    /// Notes that a compaction found nothing more to do.
    pub(crate) fn settle(&mut self) {
        self.given = 0;
    }

    /// Returns the pages at the end of the open segment that hold nothing to the system.
    fn trim_open(&mut self) {
        let Some(open) = self.open else { return };
        let mut run = self.run(open);
        let record = &mut self.segments[open as usize];
        let Some((_, tail)) = self.directories.tail(&record.directory) else { return };
        let pages = (record.directory.end() - tail).div_ceil(PAGE);
        if pages < record.pages() {
            self.directories.truncate(&mut record.directory, pages * PAGE);
            let tail = self.directories.tail(&record.directory);
            // No directory covers these pages any longer, so no place is in them (F1).
            self.arena.uncommit(&mut run, pages.into());
            self.set_live_min();
            if let Some((_, left)) = tail {
                self.holes.set(bin_of(left), open);
            }
        }
    }

    /// Gives back free pages of the open segment, and what tables have too much: all of it if
    /// `tight`, otherwise only where it is much. A tight trim after an object was taken and given
    /// back leaves no more than there was before, but for four bytes if it took a new run.
    ///
    /// # Cost
    /// In proportion to what is left of them, if that is less than half or the trim is tight.
    pub(crate) fn trim(&mut self, tight: bool) {
        self.trim_open();
        self.arena.trim();
        let used = self.segments.iter().rposition(|record| record.state != State::Unused);
        let segments = used.map_or(0, |last| last + 1);
        self.segments.truncate(segments);
        self.segments.shrink_to(if tight { segments } else { segments + segments / 16 });
        self.holes.trim(segments);
        let idle_max = if tight { 0 } else { self.directories.entries_len() / 2 };
        let in_use = self.segments.iter_mut().filter(|record| record.state != State::Unused);
        self.directories.trim(in_use.map(|record| &mut record.directory), idle_max);
    }

    /// Returns whether a place is taken.
    pub(crate) fn is_taken(&self, place: Place) -> bool {
        let record = self.segments.get(place.segment as usize);
        record.is_some_and(|record| {
            record.state != State::Unused && self.directories.is_used(&record.directory, place.at)
        })
    }

    /// Returns the granules of the place taken there, if one is.
    pub(crate) fn granules_at(&self, place: Place) -> Option<u16> {
        let record = self.segments.get(place.segment as usize).filter(|_| self.is_taken(place))?;
        let mut extents = self.directories.extents(&record.directory);
        extents.find(|extent| extent.at == place.at).map(|extent| extent.len)
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
        let holes = pages * u64::from(PAGE) - live;
        let loose = holes * LOOSE > pages * u64::from(PAGE) && holes > u64::from(SEGMENT);
        assert_eq!(self.is_loose(), loose, "{holes} granules of {pages} pages are holes");
        assert_eq!(in_use().count() as u64, self.segments_used, "F9: segments");
        let open = self.open.map(|open| self.segment(open).state);
        assert!(open.is_none_or(|state| state == State::Used), "F3: the open segment");
        places
    }
}
