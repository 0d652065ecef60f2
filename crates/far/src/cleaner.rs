//! Background work, by one thread: it deletes dead objects, rewrites sparse ones, moves on the
//! expiry of those that live, and tries an absent engine again.
//!
//! - C1: a round has a bound: [`ROUND_UNITS`] rewritten, a deadline for each call, and nothing
//!   rewritten or deleted after [`ROUND`].
//! - C2: a copy counts after it is acknowledged, and the copied object can die only then (far/H1,
//!   log/L5).
//! - C3: what failed is done again in a later round: deletions stay listed until acknowledged.
//! - C4: the number of a put that failed is deleted one to two deadlines later, when the put can no
//!   longer be under way.
//! - C5: an absent engine may answer all the same: it is full, or lacks one of several servers. So
//!   after each probe that fails, live objects are renewed if it is time, and dead ones are
//!   deleted. Otherwise live ones would expire, and a full engine would stay full.

use std::time::{Duration, Instant};

use crate::engine::EngineError;
use crate::far::Far;
use crate::link::Failure;
use crate::log::Piece;
use crate::map::UNIT;
use crate::seal::SEALED;

/// Most units that a round rewrites: 32 MiB.
const ROUND_UNITS: usize = (32 << 20) / UNIT;

/// How long a round begins work.
const ROUND: Duration = Duration::from_secs(20);

/// How many objects are renewed in one call.
const RENEW_MAX: usize = 4096;

/// Most objects of one deletion.
const DELETE_MAX: usize = 512;

/// Gap between two pieces of an object, in units, that is fetched rather than skipped: 64 KiB.
const GAP_MAX: u32 = 128;

/// How long an engine that did not answer the last call is asked to delete everything.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What a round remembers for the next.
#[derive(Debug, Default)]
pub(crate) struct Round {
    probe: Option<(Instant, Duration)>,
    renew: Option<Instant>,
    age: Option<Instant>,
}

impl Far {
    /// Does a round at `now`; returns when the next should be, at the latest.
    pub(crate) fn tend(&self, now: Instant, round: &mut Round) -> Duration {
        let probed = self.link.absent() && self.probe(now, round);
        if !self.link.absent() {
            round.probe = None;
            self.renew(now, round, self.options.deadline);
            self.age(now, round);
            self.clean();
            if !self.link.absent() {
                self.delete_dead(self.options.deadline);
            }
        } else if probed {
            // So that the next probe is not much later than it should be.
            let patience = self.options.deadline.min(self.options.probe_max);
            if self.renew(now, round, patience) {
                self.age(now, round);
                self.delete_dead(patience);
            }
        }
        let next = round.probe.map_or(self.options.tend, |(at, _)| at - now);
        next.min(self.options.tend)
    }

    /// Tries an absent engine with an object of one unit, if it is time; returns whether it was.
    fn probe(&self, now: Instant, round: &mut Round) -> bool {
        let options = &self.options;
        let (at, wait) = *round.probe.get_or_insert((now + options.probe, options.probe));
        if now < at {
            return false;
        }
        let doom = |number| self.log().doom(number);
        // A thread that closes the backing waits for this call, too.
        if self.put_once(&[0; UNIT], self.within(options.probe_max)).map(doom).is_ok() {
            self.link.set_absent(false);
        } else {
            let wait = (2 * wait).min(options.probe_max);
            round.probe = Some((now + wait, wait));
        }
        true
    }

    /// Moves on the expiry of all objects, if it is time; returns false if that was not heard.
    fn renew(&self, now: Instant, round: &mut Round, patience: Duration) -> bool {
        if round.renew.is_some_and(|at| now < at) {
            return true;
        }
        for slot in (0..).step_by(RENEW_MAX) {
            let Some(numbers) = self.log().numbers(slot..slot + RENEW_MAX) else { break };
            if self.link.renew(&numbers, Instant::now() + patience).is_err() {
                return false;
            }
        }
        round.renew = Some(now + self.options.renew);
        true
    }

    /// Lets the numbers of puts that failed become dead (C4).
    fn age(&self, now: Instant, round: &mut Round) {
        if round.age.is_none_or(|at| now >= at) {
            self.log().age();
            round.age = Some(now + self.options.deadline);
        }
    }

    /// Rewrites live pieces of sparse and small objects (C1, C2).
    fn clean(&self) {
        let (begun, mut written) = (Instant::now(), 0);
        while written < ROUND_UNITS && begun.elapsed() < ROUND {
            let pieces = self.log().victims();
            if pieces.is_empty() {
                return;
            }
            match self.rewrite(&pieces) {
                Ok(units) => written += units.max(1),
                Err(_) => return,
            }
        }
    }

    /// Writes pieces into one new object; returns how many units.
    fn rewrite(&self, pieces: &[Piece]) -> Result<usize, Failure> {
        let (kept, plain) = self.gather(pieces)?;
        if kept.is_empty() {
            return Ok(0);
        }
        #[cfg(test)]
        self.rewrite_early(&kept, &plain)?;
        let number = self.put(&plain, self.until()).inspect_err(|_| self.link.set_absent(true))?;
        let units = plain.len() / UNIT;
        self.link.count_cleaned((units * SEALED) as u64);
        // For the cleaner there is always room; if there is none all the same, the copy is dead.
        let _ = self.change(|log| log.relocate(number, &kept));
        Ok(units)
    }

    /// Fetches pieces; returns those that came, and their bytes in order. An object that is lost or
    /// damaged is left alone from now on; whoever reads it is told.
    fn gather(&self, pieces: &[Piece]) -> Result<(Vec<Piece>, Vec<u8>), Failure> {
        let units = pieces.iter().map(|piece| piece.span.len as usize).sum::<usize>();
        let mut plain = Vec::with_capacity(units * UNIT);
        let mut kept = Vec::with_capacity(pieces.len());
        for near in pieces.chunk_by(near) {
            let before = plain.len();
            match self.fetch_pieces(near, &mut plain) {
                Ok(()) => kept.extend_from_slice(near),
                Err(Failure::Forged | Failure::Engine(EngineError::Missing)) => {
                    plain.truncate(before);
                    self.log().leave(&near[0]);
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok((kept, plain))
    }

    /// Fetches pieces of one object in one range, and appends their bytes to `plain`.
    fn fetch_pieces(&self, pieces: &[Piece], plain: &mut Vec<u8>) -> Result<(), Failure> {
        let (first, last) = (pieces[0], pieces[pieces.len() - 1]);
        let start = first.spot.index;
        let len = (last.spot.index + last.span.len - start) as usize;
        let mut sealed = vec![0; len * SEALED];
        let before = plain.len();
        self.attempts(self.until(), |until| {
            plain.truncate(before);
            let offset = start as usize * SEALED;
            let open = |sealed: &mut [u8]| {
                for piece in pieces {
                    let at = (piece.spot.index - start) as usize * SEALED;
                    let sealed = &mut sealed[at..][..piece.span.len as usize * SEALED];
                    let end = plain.len();
                    plain.resize(end + piece.span.len as usize * UNIT, 0);
                    self.sealer.open(
                        piece.spot.number,
                        piece.spot.index,
                        sealed,
                        &mut plain[end..],
                    )?;
                }
                Ok(())
            };
            // No other thread deletes it.
            self.link.get(first.spot.number, offset, &mut sealed, until, open, || true)
        })
        .inspect_err(|failure| self.note_absence(failure))
    }

    /// Deletes what is dead; each call has so much time (C3).
    fn delete_dead(&self, patience: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < ROUND {
            let numbers = self.change(|log| log.take_dead(DELETE_MAX));
            if numbers.is_empty() {
                return;
            }
            if self.link.delete(&numbers, Instant::now() + patience).is_err() {
                numbers.into_iter().for_each(|number| self.log().doom(number));
                return;
            }
        }
    }

    /// Deletes everything, and lets the engine go, as far as it does so within one deadline, or
    /// within [`LAST_WORDS`] if it did not answer the last call.
    pub(crate) fn remove_all(&self) {
        let until = if self.link.is_silent() { self.within(LAST_WORDS) } else { self.until() };
        self.log().discard_all();
        loop {
            let numbers = self.log().take_dead(DELETE_MAX);
            if numbers.is_empty() {
                break;
            }
            if self.attempts(until, |until| self.link.delete(&numbers, until)).is_err() {
                return;
            }
        }
        // Nothing is there any more.
        let _ = self.link.close(until);
    }
}

/// Returns whether two pieces that follow each other are fetched together.
fn near(before: &Piece, after: &Piece) -> bool {
    let end = before.spot.index + before.span.len;
    before.spot.number == after.spot.number && (end..=end + GAP_MAX).contains(&after.spot.index)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::log::Span;
    use crate::options::FarOptions;
    use crate::testing::{SimEngine, SimFault, SimFaults};

    fn far() -> (Arc<SimEngine>, Far, Instant) {
        let engine = Arc::new(SimEngine::new(1, SimFaults::default()));
        let options = FarOptions::new(8 << 20).with_backoff(Duration::ZERO);
        let far = Far::new(Arc::clone(&engine) as _, options).unwrap();
        (engine, far, Instant::now())
    }

    #[test]
    fn what_lives_is_renewed_as_often_as_it_should_be() {
        let (engine, far, start) = far();
        let mut round = Round::default();
        far.write(0, &[1; UNIT]).unwrap();
        for (seconds, renewals) in [(0, 1), (1, 1), (899, 1), (900, 2), (1799, 2), (1801, 3)] {
            far.tend(start + Duration::from_secs(seconds), &mut round);
            assert_eq!(engine.renewals_total(), renewals, "after {seconds} s");
        }
        engine.set_absent(true);
        far.tend(start + Duration::from_secs(2701), &mut round);
        engine.set_absent(false);
        far.tend(start + Duration::from_secs(2702), &mut round);
        assert_eq!(engine.renewals_total(), 4, "what failed is tried again");
    }

    #[test]
    fn an_absent_engine_is_tried_at_growing_intervals() {
        let (engine, far, start) = far();
        let mut round = Round::default();
        engine.set_absent(true);
        far.link.set_absent(true);
        for (ms, calls) in [(0, 0), (199, 0), (200, 1), (599, 1), (600, 2), (1399, 2)] {
            let next = far.tend(start + Duration::from_millis(ms), &mut round);
            assert_eq!(engine.calls_total(), calls, "after {ms} ms");
            assert!(next <= far.options.tend);
        }
        engine.set_absent(false);
        far.tend(start + Duration::from_millis(1400), &mut round);
        assert!(!far.link.absent());
        assert_eq!(engine.objects(), 0, "the probe's object is gone");
    }

    #[test]
    fn an_engine_that_takes_nothing_renews_what_lives_and_deletes_what_is_dead() {
        let (engine, far, start) = far();
        let mut round = Round::default();
        far.write(0, &[1; 2 * UNIT]).unwrap();
        far.write(2, &[2; UNIT]).unwrap();
        far.tend(start, &mut round);
        // It is full.
        engine.set_faults(SimFaults::default().with(SimFault::PutRefused, 1000));
        assert!(far.write(9, &[1; UNIT]).is_err() && far.link.absent());
        far.discard(Span { unit: 0, len: 2 });
        let renewals = |from: u64, to: u64, round: &mut Round| {
            let before = engine.renewals_total();
            for second in from..to {
                far.tend(start + Duration::from_secs(second), round);
            }
            engine.renewals_total() - before
        };
        assert!(renewals(1, 1901, &mut round) >= 1, "once in 900 s");
        assert_eq!(engine.objects(), 1, "what is dead is gone");
        // An engine that does not answer at all is not asked to delete.
        far.discard(Span { unit: 2, len: 1 });
        engine.set_absent(true);
        renewals(1901, 2001, &mut round);
        assert!(far.link.absent() && engine.objects() == 1);
        engine.set_absent(false);
        renewals(2001, 2011, &mut round);
        assert_eq!(engine.objects(), 0);
    }

    #[test]
    fn what_a_read_waited_for_in_vain_nothing_else_waits_for() {
        let (engine, far, start) = far();
        let mut round = Round::default();
        for at in 0..8 {
            far.write(124 * at, &[at as u8; 124 * UNIT]).unwrap();
        }
        far.tend(start, &mut round);
        // There is something to clean and to delete.
        (0..8).for_each(|at| {
            far.discard(Span { unit: 124 * at, len: if at > 5 { 124 } else { 80 } })
        });
        engine.set_absent(true);
        assert!(far.read(123, &mut [0; UNIT]).is_err());
        let before = engine.calls_total();
        far.tend(start, &mut round);
        assert_eq!((far.link.absent(), engine.calls_total()), (true, before));
        // Nor does a deletion, if the cleaner has found out.
        far.link.set_absent(false);
        far.tend(start, &mut round);
        assert!(far.link.absent());
        assert_eq!(engine.calls_total() - before, u64::from(far.options.attempts), "one get");
    }

    #[test]
    fn a_put_that_failed_is_deleted_when_it_cannot_come_any_more() {
        let (engine, far, start) = far();
        let (mut round, deadline) = (Round::default(), far.options.deadline);
        far.tend(start, &mut round);
        engine.set_faults(SimFaults::default().with(SimFault::PutUnanswered, 1000));
        assert!(far.write(0, &[1; UNIT]).is_err());
        assert_eq!(engine.objects(), 3, "each attempt is there");
        engine.set_faults(SimFaults::default());
        far.link.set_absent(false);
        far.tend(start + deadline, &mut round);
        assert_eq!(engine.objects(), 3, "they might just come");
        far.tend(start + 2 * deadline, &mut round);
        assert_eq!(engine.objects(), 0);
    }

    #[test]
    fn a_damaged_object_does_not_keep_the_cleaner_from_others() {
        let (engine, far, start) = far();
        let mut round = Round::default();
        for at in 0..4 {
            far.write(124 * at, &[at as u8; 124 * UNIT]).unwrap();
        }
        engine.damage(false);
        for at in 4..8 {
            far.write(124 * at, &[at as u8; 124 * UNIT]).unwrap();
        }
        for at in 0..8 {
            far.discard(Span { unit: 124 * at, len: 80 });
        }
        far.tend(start, &mut round);
        let mut out = [0; 44 * UNIT];
        for at in 4..8 {
            far.read(124 * at + 80, &mut out).unwrap();
            assert_eq!(out, [at as u8; 44 * UNIT]);
        }
        assert_eq!(far.stats().objects, 4 + 2, "four are damaged, four are two by now");
        assert!(far.read(80, &mut out).is_err());
    }
}
