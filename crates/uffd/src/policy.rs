//! Which pages leave: what is remembered of each page, in 16 bits, when only faults can be seen,
//! and what follows from that. Nothing here locks, allocates or calls the system.
//!
//! Nothing reports how often a resident page is touched. But a page that left and comes back soon
//! was needed more than some that stayed. How soon is counted in pages that left meanwhile, as a
//! share of the resident pages: Linux calls this the refault distance (mm/workingset.c), and makes
//! a page with a short one active, whose accesses it then sees. Here accesses cannot be seen, so
//! refaults are the only evidence. With each refault that is in time a page gains *heat*, and with
//! each late one it loses some. The hand of the clock spares a page for as many rounds as its heat
//! says, twice as many for each degree: a page that has been needed for long is rarely tried, and a
//! page that is no longer needed is found after about as long as it had been needed. Unknown pages
//! have no heat, so a scan passes through without displacing hot pages.
//!
//! Where all pages come back alike, heat tells nothing. A program that goes over all of its memory
//! again and again either finds no page in time, or all of them hot, and whatever leaves is what it
//! needs next. There [`Returns`] lets chance decide which pages are kept, so that a part stays for
//! the next pass (bimodal insertion: Qureshi et al., "Adaptive Insertion Policies for High
//! Performance Caching", ISCA 2007). Neighbours share their luck: what is brought back between them
//! stays in one piece.
//!
//! Programs also work in phases: what has just come is in use for a while, and comes back soon if
//! it leaves before. Others touch a page once, or now and then. Which of the two it is tell sampled
//! pages, which may leave as soon as they have come. Where most of those that left so young come
//! back soon, other pages without heat stay for longer once they have come.
//!
//! - P1: a search for pages to leave ends: after [`Haste::ROUNDS`] rounds no page is spared.
//! - P2: a page that has just come is not taken before others, though it has no heat: it may not
//!   even have been touched, and the hand may move just ahead of a sequence of faults.
//! - P3: all that is remembered is a hint. A wrong hint, because it is too old for eras to be told
//!   apart or belongs to an earlier page at this address, costs one fault.

pub mod watched;

use std::sync::atomic::{AtomicU64, Ordering};

/// Eras in which as many pages leave as are resident.
pub(crate) const ERAS: u16 = 32;

/// Bits of an era; eras can be told apart while up to 256 times the resident pages leave.
pub(crate) const ERA_BITS: u32 = 13;
const ERA_MASK: u16 = (1 << ERA_BITS) - 1;

/// Bounds, in eras, of returns at once, soon, and in time; after the last, a page is unknown. A
/// page that returned after more pages had left than are resident was needed no more than those
/// that stayed.
const AT_ONCE: u16 = ERAS / 16;
const SOON: u16 = ERAS / 2;
const IN_TIME: u16 = ERAS;
const LOST: u16 = 2 * ERAS;

/// Returns of which one is counted, and how many of those are remembered.
const SAMPLED: u64 = 16;
const REMEMBERED: u32 = 1024;

/// Counted returns of which one may be in time where pages come late, and late where they come in
/// time, for all to be alike.
const LATE_ALIKE: u32 = 16;
const IN_TIME_ALIKE: u32 = 32;

/// Groups of pages of which chance keeps one, among late returns and among those in time, how many
/// pages there are in each, and their heat.
const LATE_ODDS: u64 = 16;
const IN_TIME_ODDS: u64 = 8;
const GROUP: u64 = 512;
const KEPT: u16 = 4;

/// Eras for which a page without heat stays after it has come (P2): usually, and where most pages
/// that leave before come back soon; and in which a sampled page leaves young.
const FRESH: u16 = 1;
const SETTLING: u16 = ERAS / 2;
const YOUNG: u16 = ERAS / 8;

/// In place of a heat: a page without heat that settles, or if it is away, left young.
const NEW: u16 = 6;

/// Rounds for which the hand spares a page, by its heat.
const ROUNDS: [u8; 6] = [0, 4, 8, 16, 32, 64];
const HEAT_MAX: u16 = ROUNDS.len() as u16 - 1;

/// Bits of an era's fraction in the clock.
const FRACTION: u32 = 32;

/// A time, counted in pages that left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Era(u16);

impl Era {
    /// Returns how many eras have passed since an earlier one.
    fn since(self, earlier: Self) -> u16 {
        self.0.wrapping_sub(earlier.0) & ERA_MASK
    }

    /// Returns whether it is later than another one, of which it is not very far.
    pub fn is_after(self, other: Self) -> bool {
        (1..=ERA_MASK / 2).contains(&self.since(other))
    }

    /// Returns the eras after this one up to another.
    pub(crate) fn until(self, last: Self) -> impl Iterator<Item = Self> {
        (1..=last.since(self)).map(move |after| Self(self.0.wrapping_add(after) & ERA_MASK))
    }

    pub(crate) fn number(self) -> u16 {
        self.0
    }

    pub(crate) fn from_number(number: u16) -> Self {
        Self(number & ERA_MASK)
    }
}

/// Counts pages that leave.
#[derive(Debug, Default)]
pub struct Clock(AtomicU64);

impl Clock {
    /// Counts `left` pages that leave while `resident` are resident.
    pub fn advance(&self, left: usize, resident: usize) {
        let share = ((left as u128 * u128::from(ERAS)) << FRACTION) / resident.max(1) as u128;
        // Relaxed: the number is used on its own.
        self.0.fetch_add(share as u64, Ordering::Relaxed);
    }

    /// Returns the current era.
    pub fn now(&self) -> Era {
        Era((self.0.load(Ordering::Relaxed) >> FRACTION) as u16 & ERA_MASK)
    }
}

/// What is remembered of a page: its heat, and when it came or left last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Past(u16);

impl Past {
    /// Nothing is remembered.
    pub const UNKNOWN: Self = Self(0);

    fn new(heat: u16, at: Era) -> Self {
        Self(heat << ERA_BITS | at.0)
    }

    fn is_new(self) -> bool {
        self.0 >> ERA_BITS == NEW
    }

    fn heat(self) -> u16 {
        if self.is_new() { 0 } else { self.0 >> ERA_BITS }
    }

    /// Returns when it came or left last.
    pub fn at(self) -> Era {
        Era(self.0 & ERA_MASK)
    }

    /// Returns what is remembered as bits.
    pub fn bits(self) -> u16 {
        self.0
    }

    /// See [`bits`](Self::bits).
    pub fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// An unknown page comes.
    fn first(now: Era) -> Self {
        Self::new(0, now)
    }

    /// The page leaves. Whether it is young is for [`Returns::left`].
    #[must_use]
    fn left(self, now: Era) -> Self {
        Self::new(self.heat(), now)
    }

    /// The page comes back. What chance does to that is for [`Returns::back`].
    #[must_use]
    fn returned(self, now: Era) -> Self {
        if self == Self::UNKNOWN {
            return Self::first(now);
        }
        let heat = match now.since(self.at()) {
            0..AT_ONCE => self.heat() + 3,
            AT_ONCE..SOON => self.heat() + 2,
            SOON..IN_TIME => self.heat() + 1,
            IN_TIME..LOST => self.heat().saturating_sub(2),
            LOST.. => 0,
        };
        Self::new(heat.min(HEAT_MAX), now)
    }

    /// Returns for how many rounds of the hand the page, which has come, is spared.
    pub fn rounds(self) -> u8 {
        ROUNDS[usize::from(self.heat().min(HEAT_MAX))]
    }

    /// Returns whether the page, which is there, has just come (P2).
    fn is_fresh(self, now: Era) -> bool {
        now.since(self.at()) <= if self.is_new() { SETTLING } else { FRESH }
    }
}

/// How pages have come back of late: how many of a sample were in time, and how many there were;
/// and how many of those that left young came back soon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Returns {
    in_time: u16,
    all: u16,
    back: u16,
    young: u16,
}

impl Returns {
    /// Returns the same from [`bits`](Self::bits).
    pub fn from_bits(bits: u64) -> Self {
        let [in_time, all, back, young] = [48, 32, 16, 0].map(|at| (bits >> at) as u16);
        Self { in_time, all, back, young }
    }

    /// Returns them as bits.
    pub fn bits(self) -> u64 {
        let parts = [self.in_time, self.all, self.back, self.young];
        parts.into_iter().fold(0, |bits, part| bits << 16 | u64::from(part))
    }

    /// A page leaves; returns what is to be remembered of it.
    #[must_use]
    pub fn left(&mut self, past: Past, page: u64, now: Era) -> Past {
        let is_young = past.heat() == 0 && now.since(past.at()) <= YOUNG;
        if !is_young || !page.is_multiple_of(SAMPLED) {
            return past.left(now);
        }
        let fades = 1 + u16::from(u32::from(self.young) + 1 >= REMEMBERED);
        (self.back, self.young) = (self.back / fades, (self.young + 1) / fades);
        Past::new(NEW, now)
    }

    /// A page comes, again if `past` is known; returns what is to be remembered of it. Pages of a
    /// group (`page` / `GROUP`) draw the same odds.
    pub fn refaulted(&mut self, past: Past, page: u64, now: Era) -> Past {
        let came = self.came(past, page, now);
        let settles = came.heat() == 0 && !page.is_multiple_of(SAMPLED) && self.are_young_needed();
        if settles { Past::new(NEW, now) } else { came }
    }

    /// Whether most of those that left young have come back soon, and not because all do.
    fn are_young_needed(self) -> bool {
        let is_known = u32::from(self.young) >= REMEMBERED / 16;
        is_known && self.back > self.young / 2 && !self.are_alike(true)
    }

    fn came(&mut self, past: Past, page: u64, now: Era) -> Past {
        let refaulted = past.returned(now);
        if past == Past::UNKNOWN {
            return refaulted;
        }
        let in_time = now.since(past.at()) < IN_TIME;
        self.back += u16::from(past.is_new() && now.since(past.at()) < SOON);
        self.back = self.back.min(self.young);
        if page.is_multiple_of(SAMPLED) {
            self.count(in_time);
        }
        if !self.are_alike(in_time) || (!in_time && past.heat() > 0) {
            return refaulted;
        }
        let odds = if in_time { IN_TIME_ODDS } else { LATE_ODDS };
        let heat = match draw(page / GROUP, now.0 / ERAS).is_multiple_of(odds) {
            true => refaulted.heat().max(KEPT),
            false => past.heat(),
        };
        Past::new(heat, now)
    }

    fn count(&mut self, in_time: bool) {
        self.all += 1;
        self.in_time += u16::from(in_time);
        if u32::from(self.all) >= REMEMBERED {
            (self.in_time, self.all) = (self.in_time / 2, self.all / 2);
        }
    }

    /// Whether nearly all have come back in time, or nearly none.
    fn are_alike(self, in_time: bool) -> bool {
        let (all, soon) = (u32::from(self.all), u32::from(self.in_time));
        let is_so =
            if in_time { (all - soon) * IN_TIME_ALIKE < all } else { soon * LATE_ALIKE < all };
        is_so && all >= REMEMBERED / 16
    }
}

/// Returns a number that looks random (the finisher of Steele et al.'s SplitMix, OOPSLA 2014).
pub fn draw(group: u64, time: u16) -> u64 {
    let mixed = (group ^ u64::from(time) << 40).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}

/// How urgent a search for pages is: the longer it has found none, the fewer pages it spares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Haste(u32);

impl Haste {
    /// Rounds after which a search has looked at each page at least once with nothing spared.
    pub const ROUNDS: usize = 9;

    /// The haste after `rounds` rounds that found nothing.
    pub fn after(rounds: usize) -> Self {
        Self(rounds.saturating_sub(1) as u32)
    }

    /// The hand passes a page that it should spare for `rounds` more rounds. Returns how many are
    /// left, or `None` if the page leaves.
    pub fn pass(self, rounds: u8, past: Past, now: Era) -> Option<u8> {
        let spared = rounds > 0 || (self.0 == 0 && past.is_fresh(now));
        spared.then_some(rounds.saturating_sub(self.step()))
    }

    /// Returns the rounds that it takes off a page.
    fn step(self) -> u8 {
        1_u8.checked_shl(self.0).unwrap_or(u8::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn era(at: u16) -> Era {
        Era(at & ERA_MASK)
    }

    /// The rounds after a page has come back each time after so many eras.
    fn rounds(distances: &[u16]) -> u8 {
        let (mut now, mut past) = (5_u16, Past::first(era(5)));
        for distance in distances {
            past = past.left(era(now));
            now += distance;
            past = past.returned(era(now));
        }
        past.rounds()
    }

    #[test]
    fn a_page_that_comes_back_soon_again_and_again_is_spared_longer_and_longer() {
        assert_eq!(rounds(&[]), 0);
        let in_time: Vec<_> = (1..8).map(|times| rounds(&vec![IN_TIME - 1; times])).collect();
        assert_eq!(in_time, [4, 8, 16, 32, 64, 64, 64]);
        let once = [0, AT_ONCE, SOON, IN_TIME, LOST].map(|distance| rounds(&[distance]));
        assert_eq!(once, [16, 8, 4, 0, 0]);
    }

    #[test]
    fn a_page_that_comes_back_late_is_not_hot_any_more() {
        assert_eq!(rounds(&[0, 0]), 64);
        assert_eq!(rounds(&[0, 0, IN_TIME]), 16);
        assert_eq!(rounds(&[0, 0, IN_TIME, IN_TIME, IN_TIME]), 0);
        assert_eq!(rounds(&[0, 0, LOST]), 0);
        assert_eq!(rounds(&[0, 0, 100 * ERAS]), 0);
        assert_eq!(Past::UNKNOWN.returned(era(1)), Past::first(era(1)));
    }

    #[test]
    fn an_era_ends_when_a_share_of_what_is_resident_has_left() {
        for (left, resident) in [(1, 3200), (128, 3200), (7, 1 << 40)] {
            let clock = Clock::default();
            let steps = resident / left / 1000;
            (0..1000).for_each(|_| clock.advance(left * steps.max(1), resident));
            let expected = (1000 * left * steps.max(1)) as f64 / resident as f64 * f64::from(ERAS);
            assert!((expected - f64::from(clock.now().0)).abs() <= 1.0, "{expected}: {clock:?}");
        }
        let clock = Clock::default();
        (0..300).for_each(|_| clock.advance(1000, 1000));
        assert_eq!(clock.now(), era(300_u16.wrapping_mul(ERAS)), "they begin anew");
        assert!(era(3).is_after(era(ERA_MASK)) && !era(ERA_MASK).is_after(era(3)));
        assert!(!era(3).is_after(era(3)));
        clock.advance(1, 0);
    }

    /// The share of pages of which chance decides that they stay, after returns of which so many in
    /// a hundred were in time, and the groups in which there are both.
    fn kept(in_time: u64, distance: u16) -> (f64, usize) {
        let (mut returns, mut kept, mut torn) = (Returns::default(), 0, 0);
        let groups = 4000_u64;
        let left = Past::first(era(1)).left(era(1));
        for page in 0..100 * SAMPLED * u64::from(REMEMBERED) / 10 {
            let distance = if page / SAMPLED % 100 < in_time { 1 } else { LOST };
            returns.refaulted(left, page, era(1 + distance));
        }
        for page in (0..groups).map(|group| group * GROUP) {
            let is_kept = |page| {
                let past = Past::new(0, era(100)).left(era(100));
                returns.clone().refaulted(past, page, era(100 + distance)).heat() >= KEPT
            };
            kept += usize::from(is_kept(page));
            torn += usize::from(is_kept(page) != is_kept(page + GROUP - 1));
        }
        (kept as f64 / groups as f64, torn)
    }

    #[test]
    fn chance_keeps_some_groups_where_all_come_back_alike() {
        let near = |share: f64, odds: u64| (share * odds as f64 - 1.0).abs() < 0.2;
        assert!(matches!(kept(0, LOST), (share, 0) if near(share, LATE_ODDS)));
        assert!(matches!(kept(0, IN_TIME), (share, 0) if near(share, LATE_ODDS)));
        assert!(matches!(kept(100, IN_TIME - 1), (share, 0) if near(share, IN_TIME_ODDS)));
        // Nothing is alike, or the page is not like the others.
        for in_time in [10, 50, 90] {
            assert_eq!([kept(in_time, LOST), kept(in_time, IN_TIME - 1)], [(0.0, 0); 2]);
        }
        assert_eq!(kept(0, IN_TIME - 1), (0.0, 0));
        assert_eq!(kept(100, LOST), (0.0, 0));
        // Nothing is known yet.
        let mut returns = Returns::default();
        let late =
            (0..900).map(|page| returns.refaulted(Past::first(era(1)), page, era(1 + LOST)).heat());
        assert_eq!(late.sum::<u16>(), 0);
        assert_eq!(Returns::from_bits(returns.bits()), returns);
    }

    #[test]
    fn where_all_come_in_time_only_chance_makes_a_page_hotter() {
        let mut returns = Returns { in_time: 900, all: 900, ..Returns::default() };
        let heats: Vec<_> = (0..100)
            .map(|group| {
                let past = Past::new(1, era(1)).left(era(1));
                returns.refaulted(past, group * GROUP + 1, era(2)).heat()
            })
            .collect();
        assert!(heats.iter().all(|&heat| heat == 1 || heat == KEPT), "{heats:?}");
    }

    #[test]
    fn pages_settle_where_most_that_leave_young_come_back_soon() {
        let settled = |back: u64| {
            let mut returns = Returns::default();
            for page in (0..200).map(|nth| nth * SAMPLED) {
                let past = returns.left(Past::first(era(10)), page, era(10 + YOUNG));
                let late = if page / SAMPLED % 100 < back { SOON - 1 } else { LOST };
                let came = returns.refaulted(past, page, era(10 + YOUNG + late));
                assert!(!came.is_new(), "a sampled page");
            }
            assert_eq!(Returns::from_bits(returns.bits()), returns);
            let came = returns.refaulted(Past::UNKNOWN, 1, era(50));
            let spared = |at: u16| Haste::after(0).pass(0, came, era(at)).is_some();
            let last = (50..100).rev().find(|&at| spared(at));
            assert_eq!(Haste::after(2).pass(0, came, era(50)), None, "P1");
            (came.heat(), last.map(|last| last - 50))
        };
        // Where all come back, nothing settles.
        let found = [0, 45, 55, 90, 100].map(settled);
        assert_eq!(found, [1, 1, 16, 16, 1].map(|eras| (0, Some(eras))));
        // What does not leave young tells nothing, nor does what is not sampled.
        let mut returns = Returns::default();
        for (page, age, heat) in [(0, YOUNG + 1, 0), (1, 0, 0), (0, 0, 1)] {
            let left = returns.left(Past::new(heat, era(10)), page, era(10 + age));
            assert_eq!((left, returns), (Past::new(heat, era(10 + age)), Returns::default()));
        }
    }

    #[test]
    fn what_has_just_come_stays_for_an_era_unless_there_is_nothing_else() {
        let past = Past::first(era(ERA_MASK));
        assert_eq!(Haste::after(0).pass(0, past, era(ERA_MASK)), Some(0));
        assert_eq!(Haste::after(1).pass(0, past, era(ERA_MASK + 1)), Some(0), "P2");
        assert_eq!(Haste::after(1).pass(0, past, era(ERA_MASK + 2)), None);
        assert_eq!(Haste::after(2).pass(0, past, era(ERA_MASK)), None);
    }

    #[test]
    fn a_search_ends_whatever_is_spared() {
        // Only what lies behind the hand is seen in the first round.
        for first in [0, 1] {
            let mut left = ROUNDS[ROUNDS.len() - 1];
            let past = Past::first(era(0));
            let found = (first..Haste::ROUNDS).find(|&round| {
                let passed = Haste::after(round).pass(left, past, era(0));
                passed.inspect(|rounds| left = *rounds).is_none()
            });
            assert!(found.is_some(), "P1: {left} rounds are left");
        }
        assert_eq!(Haste::after(100).pass(0, Past::default(), era(0)), None);
    }
}
