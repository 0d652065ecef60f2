//! The limit that is chosen: how it follows what is left, stalls and refaults. Numbers in, a number
//! out; who measures is elsewhere.
//!
//! ```text
//!   the limit of the cgroup, or what the machine has
//!   |<-------------------------------------------------------->|
//!   | others | held | resident                        | left   |
//!            |<--------------- room ---------------->| reserve |
//!            |<---------- the limit --->|<- withheld->|
//! ```
//!
//! - A1: the limit is for what is resident and what compressed pages take together, and is both of
//!   these and what is left, without the reserve. So there is always something left: the kernel
//!   ends whoever asks when nothing is. The run itself takes off what compressed pages take, as
//!   they take it (`Control::set_limit_together`): what is measured here is only the others, which
//!   change slowly, and the reserve is for these.
//! - A2: what is withheld besides goes to the page cache and to others. Where the kernel counts
//!   stalls, it grows while somebody waits for memory, and shrinks while nobody does. Where it does
//!   not, pages of files that were dropped and read again are what tells: it grows while they are
//!   many, and not far fewer than the pages that left and were asked for, and shrinks otherwise.
//! - A3: the limit begins with half of what is left. A program may touch memory faster than anybody
//!   looks, until its memory is closed; with half, it is closed while there is room. From then on
//!   the limit rises by four times its size each second, and to what all of the last looks have
//!   found, and falls at once.
//! - A4: with a limit of a cgroup and no backing, compressed pages may take what leaves the least
//!   limit resident, and what files take that are to be written: for these, the kernel has to wait.
//!   A page beyond that ends the run with a message, before the kernel kills it without one.
//! - A5: pages that do not compress take more than they free, in fit up to a twelfth. Where those
//!   that were stored last did, or hardly less, and all that is stored has hardly gained,
//!   compressed pages may take as much more as leaves half of the reserve, so that the run ends as
//!   in A4.

use std::time::Duration;

use crate::figures::LIMIT_MIN;

const MIB: u64 = 1 << 20;

/// What is kept free, as a part of what there was at the start, and its bounds. With half of the
/// least, the kernel killed a compiler that was writing its output.
const RESERVE_PART: u64 = 24;
const RESERVE_MIN: u64 = 4 * MIB;
const RESERVE_MAX: u64 = 512 * MIB;

/// Pages of files that are read again each second from which on they are many, and how many pages
/// that zfold brings back take as long as one of these.
const MANY: f64 = 200.0;
const FILE: f64 = 10.0;

/// How much more is withheld in a second, at most, and how much less, as parts of the room.
const TAKEN: f64 = 1.0 / 8.0;
const GIVEN: f64 = 1.0 / 32.0;

/// Most that is withheld, as a part of the room.
const WITHHELD_MAX: f64 = 0.5;

/// How much a limit rises in a second, as a part of it.
const RISE: f64 = 4.0;

/// How much has to be stored before it is judged what that costs.
const JUDGED: u64 = 4 * MIB;

/// Parts of their size that pages take which hardly gain: all that are stored, and the last.
const ALL_HARDLY: f64 = 3.0 / 4.0;
const LAST_HARDLY: f64 = 15.0 / 16.0;

/// As fast as what is left is taken to go, in bytes a second, and the bounds of the time between
/// two looks that follow from that.
const TAKES: u64 = 1 << 30;
const LOOKS: [Duration; 2] = [Duration::from_millis(4), Duration::from_millis(250)];

/// The shortest time between two looks while nothing moves: what there is for all, and what
/// compressed pages take, change by less than this part of the reserve from look to look.
const CALM: Duration = Duration::from_millis(16);
const MOVES: u64 = 8;

/// Looks that must agree that there is more. What a process had is off the kernel's count a moment
/// before zfold sees that it is gone, and would count twice as room.
const AGREE: usize = 16;

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measured {
    /// Bytes that can be had, below the limit of the cgroup and of the machine.
    pub(super) left: u64,
    /// Bytes of files that can be had when they are written.
    pub(super) unwritten: u64,
    /// Bytes of the program that are resident.
    pub(super) resident: u64,
    /// Bytes that compressed pages take.
    pub(super) held: u64,
    /// Bytes that these pages took before.
    pub(super) stored: u64,
    /// How much somebody waits for memory, from 0 to 1; none if the kernel does not count.
    pub(super) stalls: Option<f64>,
    /// Pages that left and were asked for, each second.
    pub(super) refaults: f64,
    /// Pages of files that were dropped and read again, each second.
    pub(super) file_refaults: f64,
    /// Since the last time.
    pub(super) elapsed: Duration,
}

impl Measured {
    /// Returns the same where nobody waits for memory.
    pub(super) fn calm(self) -> Self {
        Self { stalls: Some(0.0), ..self }
    }
}

/// The policy, with what it remembers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Policy {
    reserve: u64,
    /// What there was for all at the last looks, without the reserve; the newest is at `newest`.
    rooms: [u64; AGREE],
    newest: usize,
    /// What compressed pages took at the last look, and whether much has changed until then.
    held: u64,
    moves: bool,
    /// What compressed pages took when their cost was last judged, and their size before.
    judged: (u64, u64),
    /// What those that came before that took, as a part of their size.
    cost: f64,
    withheld: f64,
    limit: u64,
    least: u64,
    most: u64,
}

impl Policy {
    /// Returns the policy for a program that is about to start, when so many bytes are left.
    pub(super) fn new(left: u64) -> Self {
        let reserve = (left / RESERVE_PART).clamp(RESERVE_MIN, RESERVE_MAX);
        let limit = left.saturating_sub(reserve).min(left / 2).max(LIMIT_MIN);
        let rooms = [left.saturating_sub(reserve); AGREE];
        Self {
            reserve,
            rooms,
            newest: 0,
            held: 0,
            moves: true,
            judged: (0, 0),
            cost: 0.0,
            withheld: 0.0,
            limit,
            least: limit,
            most: limit,
        }
    }

    /// Returns the limit in bytes.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the least and the most that it left for what is resident.
    pub(super) fn range(&self) -> (u64, u64) {
        (self.least, self.most)
    }

    /// Returns when to look again.
    pub(super) fn next_look(&self, left: u64) -> Duration {
        let least = if self.moves { LOOKS[0] } else { CALM };
        Duration::from_millis(left.saturating_mul(1000) / TAKES).clamp(least, LOOKS[1])
    }

    /// Returns the most that compressed pages may take, if there is nowhere else to put them.
    pub(super) fn store_limit(&self, now: &Measured) -> u64 {
        let rest = now.resident.saturating_add(now.left).saturating_add(now.unwritten);
        let more = rest.saturating_sub(LIMIT_MIN + self.reserve);
        now.held.saturating_add(more.min(self.affordable(now)))
    }

    /// Returns how much more pages may take once they are compressed, by what it costs.
    fn affordable(&self, now: &Measured) -> u64 {
        let all = now.held as f64 / now.stored.max(1) as f64;
        if all < ALL_HARDLY || self.cost < LAST_HARDLY {
            return u64::MAX;
        }
        let spare = now.left.saturating_sub(self.reserve / 2) as f64;
        (spare * self.cost / (self.cost - 1.0).max(1.0 - LAST_HARDLY)) as u64
    }

    /// Judges what storing costs.
    fn judge(&mut self, now: &Measured) {
        let (held, stored) = self.judged;
        let more = now.stored.saturating_sub(stored);
        if more >= JUDGED {
            self.cost = now.held.saturating_sub(held) as f64 / more as f64;
        }
        // What has come back says nothing.
        if more >= JUDGED || now.stored < stored {
            self.judged = (now.held, now.stored);
        }
    }

    /// Takes a measurement into account and returns the limit.
    pub(super) fn follow(&mut self, now: &Measured) -> u64 {
        let seconds = now.elapsed.as_secs_f64();
        let all = now.resident.saturating_add(now.held).saturating_add(now.left);
        let all = all.saturating_sub(self.reserve);
        let before = self.rooms[self.newest];
        let moved = all.abs_diff(before).max(now.held.abs_diff(self.held));
        (self.moves, self.held) = (moved > self.reserve / MOVES, now.held);
        self.newest = (self.newest + 1) % AGREE;
        self.rooms[self.newest] = all;
        self.judge(now);
        let all = self.rooms.into_iter().fold(u64::MAX, u64::min);
        // For what is resident.
        let room = all.saturating_sub(now.held);
        let change = match now.stalls {
            Some(stalls) if stalls > 0.0 => TAKEN * stalls.min(1.0),
            Some(_) => -GIVEN,
            None if now.file_refaults > MANY.max(now.refaults / FILE) => TAKEN,
            None => -GIVEN,
        };
        let withheld = self.withheld + change * room as f64 * seconds;
        self.withheld = withheld.clamp(0.0, room as f64 * WITHHELD_MAX);
        let wanted = room.saturating_sub(self.withheld as u64).max(LIMIT_MIN);
        let before = self.limit.saturating_sub(now.held).max(LIMIT_MIN);
        let risen = before.saturating_add((before as f64 * RISE * seconds) as u64);
        let resident = wanted.min(risen);
        self.limit = resident.saturating_add(now.held);
        (self.least, self.most) = (self.least.min(resident), self.most.max(resident));
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn measured(left: u64, resident: u64, held: u64) -> Measured {
        let (left, resident, held) = (left * MIB, resident * MIB, held * MIB);
        Measured {
            left,
            unwritten: 0,
            resident,
            held,
            stored: 4 * held,
            stalls: Some(0.0),
            refaults: 0.0,
            file_refaults: 0.0,
            elapsed: SECOND,
        }
    }

    #[test]
    fn it_begins_with_half_of_what_is_left() {
        for (left, limit) in [(96, 48), (64, 32), (32, 16), (20, 10), (10, 5), (0, 4), (8192, 4096)]
        {
            assert_eq!(Policy::new(left * MIB).limit(), limit * MIB, "{left}");
        }
    }

    #[test]
    fn it_is_what_there_is_less_the_reserve() {
        let mut policy = Policy::new(96 * MIB);
        assert_eq!(policy.follow(&measured(16, 80, 0)), 92 * MIB, "nothing is stored yet");
        // Compressed pages have taken the place of others.
        assert_eq!(policy.follow(&measured(16, 66, 14)), 92 * MIB);
        assert_eq!(policy.follow(&measured(2, 80, 14)), 92 * MIB);
        assert_eq!(policy.follow(&measured(2, 80, 0)), 78 * MIB, "others have");
        assert_eq!(policy.follow(&measured(0, 6, 80)), 84 * MIB, "there is no less resident");
        assert_eq!(policy.range(), (LIMIT_MIN, 92 * MIB));
        // A twenty-fourth of what there was, within bounds.
        for (left, reserve) in [(48, 4), (120, 5), (240, 10), (1200, 50), (1 << 20, 512)] {
            let mut policy = Policy::new(left * MIB);
            (0..9).for_each(|_| _ = policy.follow(&measured(0, left, 0)));
            assert_eq!(policy.limit(), (left - reserve) * MIB, "{left}");
        }
    }

    #[test]
    fn it_rises_step_by_step() {
        let mut policy = Policy::new(96 * MIB);
        policy.follow(&measured(2, 62, 0));
        assert_eq!(policy.limit(), 60 * MIB);
        let soon = Measured { elapsed: SECOND / 16, ..measured(90, 6, 0) };
        let believed = (0..AGREE).map(|_| policy.follow(&soon) / MIB).collect::<Vec<_>>();
        assert!(believed[..AGREE - 1].iter().all(|limit| *limit == 60), "{believed:?}");
        assert_eq!(believed[AGREE - 1], 75, "all of them have found it");
        // What is stored neither is resident nor adds to the step.
        let stored = Measured { elapsed: SECOND / 16, ..measured(50, 6, 35) };
        assert_eq!(policy.follow(&stored), (50 + 35) * MIB);
        (0..20).for_each(|_| _ = policy.follow(&measured(90, 6, 0)));
        assert_eq!(policy.limit(), 92 * MIB, "and no further");
    }

    #[test]
    fn stalls_take_memory_from_it_and_calm_gives_it_back() {
        let mut policy = Policy::new(96 * MIB);
        let stalled = Measured { stalls: Some(1.0), ..measured(16, 80, 0) };
        let limits: Vec<u64> = (0..20).map(|_| policy.follow(&stalled) / MIB).collect();
        assert!(limits.is_sorted_by(|a, b| a >= b) && limits[0] < 92, "{limits:?}");
        assert_eq!(limits[19], 46, "half of the room is never withheld");
        let calm: Vec<u64> = (0..40).map(|_| policy.follow(&measured(16, 80, 0)) / MIB).collect();
        assert!(calm.is_sorted() && calm[39] == 92, "{calm:?}");
    }

    #[test]
    fn without_counted_stalls_files_that_are_read_again_tell() {
        let mut policy = Policy::new(96 * MIB);
        let calm = Measured { stalls: None, ..measured(4, 92, 0) };
        assert!((0..9).all(|_| policy.follow(&calm) == 92 * MIB), "nothing says that it is short");
        let thrashed = Measured { file_refaults: 1000.0, ..calm };
        let first = policy.follow(&thrashed);
        assert!(first < 92 * MIB && policy.follow(&thrashed) < first);
        // What the program asks for costs more.
        let asks = Measured { refaults: 50_000.0, ..thrashed };
        (0..60).for_each(|_| _ = policy.follow(&asks));
        assert_eq!(policy.limit(), 92 * MIB, "what it needs comes back");
    }

    #[test]
    fn compressed_pages_may_take_all_but_the_least_limit() {
        let policy = Policy::new(96 * MIB);
        assert_eq!(policy.store_limit(&measured(4, 80, 10)), (10 + 84 - 8) * MIB);
        assert_eq!(policy.store_limit(&measured(4, 6, 85)), 87 * MIB);
        assert_eq!(policy.store_limit(&measured(1, 4, 90)), 90 * MIB, "not one page more");
        let writes = Measured { unwritten: 30 * MIB, ..measured(1, 4, 60) };
        assert_eq!(policy.store_limit(&writes), (60 + 35 - 8) * MIB, "it waits for its output");
    }

    #[test]
    fn pages_that_do_not_compress_may_take_what_leaves_half_of_the_reserve() {
        // Each look finds that pages of 4 MiB take so much, after others.
        let after = |before: (u64, u64), cost: u64, looks: u64| {
            let mut policy = Policy::new(96 * MIB);
            let look = move |left, looks: u64| {
                let (held, stored) = (before.0 + looks * cost, before.1 + looks * 4);
                Measured { stored: stored * MIB, ..measured(left, 40, held) }
            };
            (0..=looks).for_each(|looks| _ = policy.follow(&look(8, looks)));
            move |left| (policy.store_limit(&look(left, looks)) - look(left, looks).held) / MIB
        };
        // Five take as much as four did: of 4 MiB of reserve, 2 stay.
        let taking = after((0, 0), 5, 6);
        assert_eq!([16, 8, 4, 3, 2, 0].map(taking), [48, 30, 10, 5, 0, 0]);
        assert_eq!([8, 3, 2, 0].map(after((0, 0), 4, 6)), [40, 16, 0, 0], "nothing is gained");
        assert_eq!([8, 3, 2, 0].map(after((0, 0), 3, 6)), [40, 35, 34, 32]);
        // Tables take more than the first pages free.
        assert_eq!([8, 2, 0].map(after((2, 1), 5, 0)), [40, 34, 32], "too little was stored");
        // Others have gained much: these, which do not, will be few.
        assert_eq!([8, 2, 0].map(after((10, 40), 5, 2)), [40, 34, 32]);
        assert_eq!([8, 2, 0].map(after((10, 40), 5, 16)), [30, 0, 0], "but are many");
        // What comes back frees less than it took, in a pool with gaps.
        let mut policy = Policy::new(96 * MIB);
        for (held, stored) in [(20, 20), (19, 10), (22, 13)] {
            policy.follow(&Measured { stored: stored * MIB, ..measured(2, 40, held) });
        }
        assert_eq!((policy.cost, policy.judged), (1.0, (19 * MIB, 10 * MIB)));
    }

    #[test]
    fn the_less_is_left_the_sooner_it_looks_again_and_later_while_nothing_moves() {
        let mut policy = Policy::new(96 * MIB);
        let looks = |policy: &Policy| {
            [0, 12, 128, 1 << 20].map(|left| policy.next_look(left * MIB).as_millis())
        };
        let (soon, calm) = ([4, 11, 125, 250], [16, 16, 125, 250]);
        assert_eq!(looks(&policy), soon);
        for (measured, expected) in [
            (measured(4, 92, 0), calm),
            (measured(3, 92, 0), soon),
            (measured(3, 92, 0), calm),
            // The same for all, but pages are compressed: they may be the ones that gain nothing.
            (measured(3, 91, 1), soon),
            (measured(4, 90, 1), calm),
        ] {
            policy.follow(&measured);
            assert_eq!(looks(&policy), expected, "{measured:?}");
        }
    }

    #[test]
    fn any_measurement_gives_a_limit_that_works() {
        let mut policy = Policy::new(u64::MAX);
        for (left, resident) in [(u64::MAX, u64::MAX), (0, u64::MAX), (u64::MAX, 0), (0, 0)] {
            for held in [0, u64::MAX] {
                let wild = Measured {
                    left,
                    unwritten: left,
                    resident,
                    held,
                    stored: resident,
                    stalls: Some(f64::INFINITY),
                    refaults: f64::NAN,
                    file_refaults: f64::NAN,
                    elapsed: Duration::MAX,
                };
                assert!(policy.follow(&wild) >= LIMIT_MIN);
                assert!(policy.store_limit(&wild) >= held);
                let wild = Measured { stalls: None, ..wild };
                assert!(policy.follow(&wild) >= LIMIT_MIN);
            }
        }
    }
}
