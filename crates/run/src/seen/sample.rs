//! The sample of pages whose accesses are looked at, and what follows for all of them, as plain
//! data.
//!
//! A *part* is [`PART`] neighbouring pages. One of 2^n parts is in the sample, by a number drawn
//! for each; the parts of a larger n are among those of a smaller one. n is such that even if the
//! program touches all that is marked between two looks, this costs it a hundredth of one thread's
//! time. At each look a page of the sample was touched since the last one, or is a look *older*.
//!
//! A page was touched if it is there and accessed, or came and left meanwhile. What left since the
//! last look, having been there, may have been touched before; but what is touched is not what
//! leaves, mostly. Pages that just came are not marked, so they are touched, and with them what was
//! brought along. So are all pages of a part that is new to the sample: as the memory of a program
//! grows that is true; where n has become smaller, only parts that were in the sample all the time
//! count.
//!
//! All pages have been touched in the same share as those of the sample (a ratio estimate, Cochran,
//! "Sampling Techniques", 1977, chapter 6, with parts as units); its error is by how much more or
//! less there may be, 95 times in 100.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use zfold_uffd::policy::draw;

use crate::core::pages::parts::Part;
use crate::core::pages::told::PART;
use crate::core::ranges::PageNo;
use crate::link::SpaceId;

/// Time between two looks.
pub(super) const PERIOD: Duration = Duration::from_secs(5);
/// Looks in 10 s, a minute and ten minutes.
const WINDOWS: [u8; 3] = [2, 12, 120];
/// Nanoseconds that the first access to a marked page takes, as seen where processors are slow.
const FIRST_ACCESS: usize = 1600;
/// Most pages that are marked at a time, and most that the sample has.
const MARKED_MAX: usize = PERIOD.as_nanos() as usize / 100 / FIRST_ACCESS;
const KNOWN_MAX: usize = 4 * MARKED_MAX;
/// The smallest sample is one of 2^this parts.
const SHIFT_MAX: u32 = 31;

/// The age of a page that was not touched.
const NEVER: u8 = u8::MAX;

/// A part: its space, and its first page.
pub(super) type At = (SpaceId, PageNo);

/// A part of the sample.
#[derive(Debug)]
struct Ages {
    /// Looks since each page was touched.
    ages: [u8; PART],
    known: u32,
    present: u32,
    /// The number of the last look at it.
    look: u32,
}

/// How many pages were touched in a time, and by how much that may be wrong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub pages: usize,
    pub error: usize,
}

/// The sample.
#[derive(Debug, Default)]
pub(super) struct Sample {
    parts: BTreeMap<At, Ages>,
    /// The least n.
    least: u32,
    /// One of 2^this parts is in it.
    shift: u32,
    /// The same at the last looks, of the last one first.
    shifts: VecDeque<u32>,
    look: u32,
    /// Pages in and outside of the sample.
    known: usize,
}

impl Sample {
    /// Returns one of at most one of 2^`least` parts.
    #[cfg(test)]
    pub(super) fn at_few(least: u32) -> Self {
        Self { least, ..Self::default() }
    }

    /// Begins a look at `known` pages, of which `present` are there.
    pub(super) fn begin(&mut self, known: usize, present: usize) {
        let fits = |shift: u32, quarters: usize| {
            let most = |of: usize| of * quarters / 4;
            present >> shift <= most(MARKED_MAX) && known >> shift <= most(KNOWN_MAX)
        };
        let least =
            |quarters| (0..SHIFT_MAX).find(|&shift| fits(shift, quarters)).unwrap_or(SHIFT_MAX);
        // It becomes smaller only where it need not grow again soon.
        self.shift = self.shift.min(least(3)).max(least(4)).max(self.least);
        self.shifts.push_front(self.shift);
        self.shifts.truncate(usize::from(WINDOWS[WINDOWS.len() - 1]) + 1);
        self.look = self.look.wrapping_add(1);
        self.known = known;
    }

    /// Returns whether a part is in the sample.
    pub(super) fn takes(&self, at: At) -> bool {
        is_taken(at, self.shift)
    }

    /// Records what a part of the sample is, and which of its pages were accessed.
    pub(super) fn saw(&mut self, at: At, part: Part, accessed: u32) {
        let new = Ages { ages: [NEVER; PART], known: 0, present: 0, look: 0 };
        let ages = self.parts.entry(at).or_insert(new);
        let touched = accessed & part.present | part.left & !ages.present;
        for (bit, age) in ages.ages.iter_mut().enumerate() {
            let is = |bits: u32| bits >> bit & 1 == 1;
            *age = match is(touched) {
                _ if !is(part.known) => NEVER,
                true => 0,
                false => age.saturating_add(1),
            };
        }
        (ages.known, ages.present, ages.look) = (part.known, part.present, self.look);
    }

    /// Ends a look: forgets parts that were not seen, and returns what was touched in each window;
    /// `None` if there is nothing to go by.
    pub(super) fn end(&mut self) -> Option<[Found; WINDOWS.len()]> {
        self.parts.retain(|_, ages| ages.look == self.look);
        let found = WINDOWS.map(|looks| self.within(looks));
        let [first, second, third] = found;
        Some([first?, second?, third?])
    }

    /// Returns what was touched in the last looks.
    fn within(&self, looks: u8) -> Option<Found> {
        // The first look at a part tells nothing of accesses.
        let shift = *self.shifts.iter().take(usize::from(looks) + 1).max()?;
        let counted: Vec<(f64, f64)> = self
            .parts
            .iter()
            .filter(|(at, _)| is_taken(**at, shift))
            .map(|(_, ages)| {
                let touched = ages.ages.iter().filter(|&&age| age < looks).count();
                (f64::from(ages.known.count_ones()), touched as f64)
            })
            .collect();
        let (known, touched) = counted.iter().fold((0.0, 0.0), |(x, y), of| (x + of.0, y + of.1));
        if known == 0.0 || (shift > 0 && counted.len() < 2) {
            return None;
        }
        let share = touched / known;
        let squares: f64 = counted.iter().map(|(x, y)| (y - share * x).powi(2)).sum();
        let chance = 1.0 / (1_u64 << shift) as f64;
        let error = 2.0 * (squares * (1.0 - chance)).sqrt() / chance;
        let pages = (share * self.known as f64).round() as usize;
        let error = (error.ceil() as usize).min(self.known.saturating_sub(pages));
        Some(Found { pages, error })
    }
}

fn is_taken((space, first): At, shift: u32) -> bool {
    let number = draw((first / PART) as u64, space.0 as u16);
    number & ((1 << shift) - 1) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory of one space, and what a program does with it between looks.
    struct World {
        sample: Sample,
        pages: usize,
        /// When each page was touched last, in looks.
        touched: Vec<usize>,
        looks: usize,
        /// The twin: pages outside of the sample were not touched.
        breaks_scale: bool,
    }

    const SPACE: SpaceId = SpaceId(7);

    impl World {
        /// All pages are touched before the first look.
        fn new(pages: usize) -> Self {
            let touched = vec![1; pages];
            Self { sample: Sample::default(), pages, touched, looks: 0, breaks_scale: false }
        }

        /// The program touches pages, and then there is a look; returns what that finds, and the
        /// pages that it marks.
        fn look(&mut self, touches: impl Fn(usize) -> bool) -> ([Found; 3], usize) {
            self.looks += 1;
            let mut marked = 0;
            self.sample.begin(self.pages, self.pages);
            for page in (0..self.pages).filter(|page| touches(*page)) {
                self.touched[page] = self.looks;
            }
            for first in (0..self.pages).step_by(PART) {
                let at = (SPACE, first);
                if !self.sample.takes(at) {
                    continue;
                }
                let mut accessed = 0;
                for bit in 0..PART.min(self.pages - first) {
                    let is_new = !self.sample.parts.contains_key(&at);
                    let is = self.touched[first + bit] == self.looks || is_new;
                    accessed |= u32::from(is) << bit;
                    marked += 1;
                }
                let present = u32::MAX >> (PART - PART.min(self.pages - first));
                let part = Part { known: present, present, left: 0 };
                self.sample.saw(at, part, accessed);
            }
            let mut found = self.sample.end().expect("a sample");
            if self.breaks_scale {
                found.iter_mut().for_each(|found| found.pages >>= self.sample.shift);
            }
            (found, marked)
        }

        fn truth(&self, looks: u8) -> usize {
            let since = self.looks.saturating_sub(usize::from(looks));
            self.touched.iter().filter(|&&look| look > since).count()
        }

        /// Whether what was found is the truth, but for the errors.
        fn is_right(&self, found: [Found; 3]) -> bool {
            let mut both = found.into_iter().zip(WINDOWS);
            both.all(|(found, looks)| {
                // Rounding, and one in twenty.
                let may = 2 * found.error + 1;
                found.pages.abs_diff(self.truth(looks)) <= may
            })
        }
    }

    #[test]
    fn a_small_program_is_seen_whole() {
        let mut world = World::new(MARKED_MAX / 4 * 3);
        let (found, _) = world.look(|_| true);
        assert_eq!(found, [Found { pages: world.pages, error: 0 }; 3], "all is new");
        for look in 0..30 {
            let (found, _) = world.look(|page| page / 1000 == look % 5);
            if look >= 12 {
                let expected = [2000, 5000, world.pages].map(|pages| Found { pages, error: 0 });
                assert_eq!(found, expected, "look {look}");
            }
        }
    }

    #[test]
    fn a_large_one_is_seen_by_a_sample_whose_error_is_told_and_which_costs_little() {
        let mut world = World::new(40 * MARKED_MAX);
        for hot in [1, 4, 9, 10] {
            for _ in 0..14 {
                let (_, marked) = world.look(|page| page / 5000 % 10 < hot);
                assert!(marked < MARKED_MAX + MARKED_MAX / 8, "{marked} are marked");
            }
            let (found, _) = world.look(|page| page / 5000 % 10 < hot);
            assert!(world.is_right(found), "{found:?}, {}", world.truth(2));
            assert!(found[0].error < world.pages / 6, "{found:?} of {}", world.pages);
            assert!(found[0].error > 0 || hot == 10, "a sample has an error");
        }
    }

    #[test]
    fn a_twin_that_forgets_what_is_not_in_the_sample_is_caught() {
        let mut world = World { breaks_scale: true, ..World::new(10 * MARKED_MAX) };
        let last = (0..14).map(|_| world.look(|page| page % 3 == 0)).last().expect("some");
        assert!(!world.is_right(last.0));
    }

    #[test]
    fn parts_that_come_into_the_sample_count_when_their_accesses_are_known() {
        let mut world = World::new(8 * MARKED_MAX);
        (0..30).for_each(|_| _ = world.look(|page| page < 1000));
        assert!(world.sample.shift >= 3);
        // Most of it is given up.
        world.pages = MARKED_MAX / 2;
        world.touched.truncate(world.pages);
        for look in 0..15 {
            let (found, _) = world.look(|page| page < 1000);
            assert!(world.is_right(found), "{found:?} after {look}");
        }
        let (found, _) = world.look(|page| page < 1000);
        assert_eq!(found[1], Found { pages: 1000, error: 0 });
    }

    #[test]
    fn what_came_and_left_between_two_looks_was_touched_and_what_is_given_up_was_not() {
        let mut sample = Sample::default();
        let part = |known, present, left| Part { known, present, left };
        let mut look = |of: Part, accessed| {
            sample.begin(of.known.count_ones() as usize, of.present.count_ones() as usize);
            sample.saw((SPACE, 0), of, accessed);
            sample.end().map(|found| found[0].pages)
        };
        assert_eq!(look(part(0b1111, 0b0011, 0), 0b0011), Some(2));
        // One leaves that was there, one comes and leaves.
        assert_eq!(look(part(0b1111, 0b0001, 0b0110), 0), Some(3), "two of them before");
        assert_eq!(look(part(0b1111, 0b0001, 0), 0), Some(1), "the one that came and left");
        assert_eq!(look(part(0b1011, 0b0001, 0), 0b0001), Some(1), "it is given up");
        assert_eq!(look(Part::default(), 0), None, "nothing is known");
    }

    #[test]
    fn samples_are_nested_and_of_their_size() {
        for shift in 1..6 {
            let taken = |space, shift| {
                let parts = (0..100_000).map(move |part| (SpaceId(space), part * PART));
                parts.filter(move |at| is_taken(*at, shift))
            };
            let count = taken(1, shift).count();
            assert!(count.abs_diff(100_000 >> shift) < 1000, "{count} of 2^{shift}");
            assert!(taken(1, shift).all(|at| is_taken(at, shift - 1)));
            assert!(!taken(1, shift).eq(taken(2, shift).map(|at| (SpaceId(1), at.1))));
        }
    }
}
