//! Which pages leave where the kernel reports accesses: a page that is *watched* has a mark, which
//! its first access clears ([`Uffd::watch`](crate::Uffd::watch)).
//!
//! A watched page has a *count* of 0 to 3 instead of heat. A page that comes is marked soon
//! afterwards, with a count of 1 if it came in time and 0 otherwise. The hand looks at its mark. If
//! the page was touched, the count rises, the page rests unmarked for twice as many rounds, since
//! it is known to be needed, and then is marked for a round. If not, the count falls by one, and at
//! 0 the page leaves. What matters is that a page is marked soon: one that was touched once and one
//! that is needed look alike until then. (Corbato, "A Paging Experiment with the Multics System",
//! 1968, has such a count without rests, of accesses that cost nothing to see.)
//!
//! What has just come is not looked at: for the rest of its era, or while it settles (P2). Where
//! all come back alike, chance decides which pages are *kept*, as without marks; those stay as long
//! as they are touched within four rounds.
//!
//! A mark costs a call, and the first access a short fault. [`Telling`] says whether they are worth
//! it. They tell nothing where no page is touched twice before it leaves, as in a loop; nor where
//! all are touched at random: there, a page that was touched in one round is touched in the next
//! one no more often than one that was not, and a page that has come half as often, since the hand
//! looks at it after half a round. Pages that come are not watched then, but for those of a sample,
//! which go on to tell.
//!
//! - P4: a page that is not watched, and one whose mark cannot be seen, has the rounds of its heat.
//! - P5: a search ends (P1): once it is hasty, a touched page is spared as little as any other.

use super::{Era, Haste, IN_TIME, KEPT, Past, Returns, SAMPLED};

/// In the place of rounds: the page is watched. Below it are a bit that says whether it rests, for
/// how many rounds or else of what kind it is, and its count.
const WATCHED: u8 = 1 << 7;
const RESTS: u8 = 1 << 5;
const SHIFT: u32 = 2;
const COUNT_MAX: u8 = 3;
/// Rounds without a mark, for each degree of the count.
const REST: u8 = 2;

/// Looks that are remembered of each kind, of which the older ones count half, and how many are
/// needed to know anything. With a quarter of them, a hot set that hardly fits was taken for
/// touches at random.
const LOOKS: u16 = 4096;
const KNOWN: u16 = 128;

/// Pages that come back of which fewer than one was touched before it left, and one was touched
/// again later, where no page is touched twice.
const ONCE: u32 = 512;
const STAY: u32 = 128;

/// A value of chi-squared that two shares of the same pages exceed one time in twenty.
const CHI: u64 = 4;
/// How often what comes is touched where all are touched at random, in twelfths of how often others
/// are.
const HALF: std::ops::RangeInclusive<u64> = 5..=8;

/// What is known of a watched page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It was touched, and rests for so many rounds.
    Resting(u8),
    /// It has come for the first time, or again, and was not looked at.
    First,
    Again,
    /// It was touched before the last look at it, or was not.
    Touched,
    Untouched,
    /// Chance keeps it.
    Kept,
}

/// What is known of a page that is watched, in the byte of its rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    kind: Kind,
    count: u8,
}

impl Watched {
    const MARKED: [Kind; 5] =
        [Kind::First, Kind::Again, Kind::Touched, Kind::Untouched, Kind::Kept];

    /// Returns what the rounds of a page say, if it is watched.
    pub fn from_rounds(rounds: u8) -> Option<Self> {
        let number = (rounds & (RESTS - 1)) >> SHIFT;
        let kind = match rounds & RESTS {
            0 => Self::MARKED[usize::from(number).min(Self::MARKED.len() - 1)],
            _ => Kind::Resting(number),
        };
        (rounds & WATCHED != 0).then_some(Self { kind, count: rounds & COUNT_MAX })
    }

    /// Returns it as rounds, more than any page has that is not watched.
    pub fn rounds(self) -> u8 {
        let kind = match self.kind {
            Kind::Resting(rest) => RESTS | rest << SHIFT,
            kind => (Self::MARKED.iter().position(|&of| of == kind).unwrap_or(0) as u8) << SHIFT,
        };
        WATCHED | kind | self.count
    }

    /// Returns whether the page should have a mark, which says whether it was touched.
    pub fn is_marked(self) -> bool {
        !matches!(self.kind, Kind::Resting(_))
    }
}

/// A page, what is known of it, and when that is.
type At = (u64, Past, Era);

/// What becomes of a page that the hand passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// It leaves.
    Leaves,
    /// It stays, with these rounds.
    Stays(u8),
    /// The same, and is to be marked.
    Marked(u8),
}

/// How often pages were touched between two looks: of those that had come, of those that were
/// touched before, and of those that were not; and how many of those that came back came along.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Telling {
    again: Share,
    touched: Share,
    untouched: Share,
    along: Share,
}

/// Whether a page is of the sample: others than those whose returns are counted.
fn is_sampled(page: u64) -> bool {
    page % SAMPLED == SAMPLED / 2
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Share {
    of: u16,
    all: u16,
}

impl Share {
    fn count(&mut self, is: bool) {
        self.all += 1;
        self.of += u16::from(is);
        if self.all >= 2 * LOOKS {
            self.fade();
        }
    }

    fn fade(&mut self) {
        (self.of, self.all) = (self.of / 2, self.all / 2);
    }
}

impl Telling {
    /// Returns whether marks tell which pages are needed; true if that is not known.
    pub fn tells(self) -> bool {
        let Self { again, touched, untouched, along: _ } = self;
        if again.all >= KNOWN
            && u32::from(again.of) * ONCE < u32::from(again.all)
            && u32::from(touched.of) * STAY < u32::from(again.all)
        {
            return false;
        }
        if touched.all < KNOWN || untouched.all < KNOWN {
            return true;
        }
        // Pearson's test of a table of two by two.
        let [a, b, n, m] = [touched.of, untouched.of, touched.all, untouched.all].map(u64::from);
        let apart = (a * m).abs_diff(b * n).pow(2) * (n + m);
        if apart > CHI * (a + b) * (n + m - a - b) * n * m {
            return true;
        }
        let twelfths = 12 * u64::from(again.of) * (n + m);
        !HALF.contains(&(twelfths / ((a + b) * u64::from(again.all)).max(1)))
    }

    fn count(&mut self, kind: Kind, touched: bool) {
        match kind {
            Kind::Again => self.again.count(touched),
            Kind::Touched => self.touched.count(touched),
            Kind::Untouched => self.untouched.count(touched),
            Kind::Resting(_) | Kind::First | Kind::Kept => {}
        }
        if kind == Kind::Again && self.again.all == LOOKS {
            [&mut self.again, &mut self.touched, &mut self.untouched]
                .into_iter()
                .for_each(Share::fade);
        }
    }

    /// A page came back: along with others, or because a thread waited for it.
    pub fn back(&mut self, along: bool) {
        self.along.count(along);
    }

    /// Whether most pages that come back come along with others: the few for which a thread waits
    /// would have to stand against those by their touches.
    fn come_along(self) -> bool {
        self.along.of > self.along.all / 2
    }

    /// Returns the rounds with which a page has come for which a thread waited: `before` was known
    /// of it, and now there is what [`Returns::refaulted`] has made of that.
    pub fn came(self, returns: Returns, before: Past, (page, came, now): At) -> u8 {
        if self.come_along() || (!is_sampled(page) && !self.tells()) {
            return came.rounds();
        }
        let in_time = before != Past::UNKNOWN && now.since(before.at()) < IN_TIME;
        let is_kept = before != Past::UNKNOWN && came.heat() >= KEPT && returns.are_alike(in_time);
        let (kind, count) = match is_kept {
            true => (Kind::Kept, COUNT_MAX),
            false if before == Past::UNKNOWN => (Kind::First, 0),
            false => (Kind::Again, u8::from(in_time)),
        };
        Watched { kind, count }.rounds()
    }

    /// The hand passes a watched page, which was touched since it was marked, if that is known.
    pub fn pass(
        &mut self,
        haste: Haste,
        watched: Watched,
        (page, past, now): At,
        touched: Option<bool>,
    ) -> Passed {
        let Watched { kind, count } = watched;
        let step = haste.step();
        if let Kind::Resting(rest) = kind {
            let rest = rest.saturating_sub(step);
            let kind = if rest == 0 { Kind::Touched } else { Kind::Resting(rest) };
            let rounds = Watched { kind, count }.rounds();
            return if rest == 0 { Passed::Marked(rounds) } else { Passed::Stays(rounds) };
        }
        let is_fresh = if past.is_new() { past.is_fresh(now) } else { past.at() == now };
        if matches!(kind, Kind::First | Kind::Again) && haste.0 == 0 && is_fresh {
            return Passed::Stays(watched.rounds());
        }
        let Some(touched) = touched else { return Passed::Stays(REST * count) };
        self.count(kind, touched);
        if touched && haste.0 == 0 {
            if kind == Kind::Kept {
                return Passed::Marked(Watched { kind, count: COUNT_MAX }.rounds());
            }
            let count = COUNT_MAX.min(count + 1);
            let rest = REST * count;
            return Passed::Stays(match is_sampled(page) || self.tells() {
                true => Watched { kind: Kind::Resting(rest), count }.rounds(),
                false => rest,
            });
        }
        if count == 0 {
            return Passed::Leaves;
        }
        let kind = if kind == Kind::Kept { kind } else { Kind::Untouched };
        Passed::Stays(Watched { kind, count: count.saturating_sub(step) }.rounds())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::LOST;

    const OTHER: u64 = SAMPLED;

    /// A page that came long ago.
    fn at(page: u64) -> At {
        (page, Past::first(Era(5)), Era(100))
    }

    /// Passes over a page in each round until it leaves or has no mark to be looked at any more;
    /// returns what happened: `l`eft, `s`tayed, `m`arked, or is no longer watched (`n`).
    fn pass(telling: &mut Telling, rounds: u8, page: u64, touched: &[bool]) -> String {
        let mut watched = Watched::from_rounds(rounds);
        let mut each = touched.iter();
        let mut events = String::new();
        while let Some(of) = watched {
            let touched = if of.is_marked() { each.next() } else { Some(&true) };
            let Some(&touched) = touched else { break };
            let (event, left) = match telling.pass(Haste(0), of, at(page), Some(touched)) {
                Passed::Leaves => ('l', 0),
                Passed::Stays(left) => ('s', left),
                Passed::Marked(left) => ('m', left),
            };
            watched = Watched::from_rounds(left);
            events.push(if watched.is_none() && event == 's' { 'n' } else { event });
        }
        events
    }

    fn came(telling: Telling, distance: Option<u16>, page: u64) -> u8 {
        let before = distance.map_or(Past::UNKNOWN, |of| Past::new(0, Era(100 - of)));
        let (mut returns, now) = (Returns::default(), Era(100));
        let past = returns.refaulted(before, page, now);
        telling.came(returns, before, (page, past, now))
    }

    /// Telling after so many looks of each kind in a thousand found the page touched.
    fn telling(again: u16, touched: u16, untouched: u16) -> Telling {
        let of = |of| Share { of, all: 1000 };
        let [again, touched, untouched] = [again, touched, untouched].map(of);
        Telling { again, touched, untouched, ..Telling::default() }
    }

    #[test]
    fn what_is_known_of_a_watched_page_fits_into_its_rounds() {
        let resting = (1..=REST * COUNT_MAX).map(Kind::Resting);
        for kind in resting.chain(Watched::MARKED) {
            for count in 0..=COUNT_MAX {
                let watched = Watched { kind, count };
                assert!(watched.rounds() >= WATCHED);
                assert_eq!(Watched::from_rounds(watched.rounds()), Some(watched));
            }
        }
        assert!((0..WATCHED).all(|rounds| Watched::from_rounds(rounds).is_none()), "P4");
    }

    #[test]
    fn a_page_that_is_touched_rests_and_one_that_is_not_leaves() {
        let mut all = Telling::default();
        let mut passes = |distance, touched: &[bool]| {
            pass(&mut all, came(Telling::default(), distance, OTHER), OTHER, touched)
        };
        assert_eq!(passes(None, &[false]), "l");
        assert_eq!(passes(Some(LOST), &[false]), "l");
        assert_eq!(passes(Some(IN_TIME - 1), &[false, false]), "sl");
        // It stays for as many looks as it was touched, and rests for twice as many rounds.
        assert_eq!(passes(None, &[true, false, false]), "ssmsl");
        assert_eq!(passes(None, &[true, true, false, false, false]), "ssmssssmssl");
        assert_eq!(passes(None, &[true; 9]).len(), 3 + 5 + 7 * 7);
    }

    #[test]
    fn what_chance_keeps_stays_while_it_is_touched_within_four_rounds() {
        let kept = Watched { kind: Kind::Kept, count: COUNT_MAX }.rounds();
        let touched = [false, false, false, true, false, false, false, false];
        assert_eq!(pass(&mut Telling::default(), kept, OTHER, &touched), "sssmsssl");
        let returns = Returns { all: 900, ..Returns::default() };
        let rounds = (0..1000_u64).map(|group| {
            let (page, mut counted) = (group * 512 + 1, returns);
            let before = Past::new(0, Era(1));
            let past = counted.refaulted(before, page, Era(1 + LOST));
            Telling::default().came(counted, before, (page, past, Era(1 + LOST)))
        });
        let are_kept = rounds.filter(|&rounds| rounds == kept).count();
        assert!((40..90).contains(&are_kept), "{are_kept} of 1000 groups, and should be a 16th");
    }

    #[test]
    fn what_has_just_come_is_not_looked_at() {
        let rounds = came(Telling::default(), None, OTHER);
        let watched = Watched::from_rounds(rounds).unwrap();
        let look = |past, era, haste| {
            let at = (OTHER, past, Era(era));
            Telling::default().pass(haste, watched, at, Some(false))
        };
        let (past, settling) = (Past::first(Era(7)), Past::new(super::super::NEW, Era(7)));
        assert_eq!(look(past, 7, Haste(0)), Passed::Stays(rounds), "P2");
        assert_eq!(look(past, 8, Haste(0)), Passed::Leaves);
        assert_eq!(look(settling, 7 + 16, Haste(0)), Passed::Stays(rounds));
        assert_eq!(look(settling, 7 + 17, Haste(0)), Passed::Leaves);
        assert_eq!(look(past, 7, Haste(1)), Passed::Leaves, "P1");
    }

    #[test]
    fn a_search_ends_whatever_is_touched() {
        for rounds in WATCHED..=u8::MAX {
            let (mut telling, mut left) = (Telling::default(), rounds);
            let mut each = (0..Haste::ROUNDS).map(Haste::after);
            let leaves = each.any(|haste| match Watched::from_rounds(left) {
                None => haste.pass(left, at(OTHER).1, Era(100)).is_none(),
                Some(of) => match telling.pass(haste, of, at(OTHER), Some(true)) {
                    Passed::Leaves => true,
                    Passed::Stays(rounds) | Passed::Marked(rounds) => {
                        left = rounds;
                        false
                    }
                },
            });
            assert!(leaves, "P5: {rounds:#x}");
        }
    }

    #[test]
    fn a_page_whose_mark_cannot_be_seen_has_rounds() {
        let watched = Watched { kind: Kind::Touched, count: 3 };
        let passed = Telling::default().pass(Haste(0), watched, at(OTHER), None);
        assert_eq!(passed, Passed::Stays(6), "P4");
    }

    #[test]
    fn marks_tell_nothing_of_loops_and_of_touches_at_random() {
        assert!(Telling::default().tells(), "nothing is known");
        // What was touched is needed more often, or less often.
        assert!(telling(50, 650, 300).tells() && telling(200, 110, 160).tells());
        // All is touched at random, or what has come is not like the others.
        assert!(!telling(90, 165, 170).tells() && !telling(250, 440, 450).tells());
        assert!(telling(50, 340, 330).tells() && telling(300, 340, 330).tells());
        // No page is touched again.
        assert!(!telling(0, 0, 0).tells() && telling(2, 500, 0).tells());
    }

    #[test]
    fn where_marks_tell_nothing_only_a_sample_is_watched() {
        let mut random = telling(90, 165, 170);
        let is_watched = |page| Watched::from_rounds(came(random, Some(1), page)).is_some();
        assert_eq!((0..1600).filter(|&page| is_watched(page)).count(), 100);
        assert_eq!(came(random, Some(1), OTHER), 16, "the rounds of its heat");
        let watched = came(Telling::default(), None, OTHER);
        assert_eq!(pass(&mut random, watched, OTHER, &[true]), "n");
        let sampled = came(random, None, SAMPLED / 2);
        assert_eq!(pass(&mut random, sampled, SAMPLED / 2, &[true, false, false]), "ssmsl");
        // From the sample it is seen when they do tell.
        for _ in 0..2000 {
            pass(&mut random, sampled, SAMPLED / 2, &[true, true, false, false, false]);
        }
        assert!(random.tells(), "{random:?}");
    }
}
