//! What is done beside reads and writes, by one thread: what died is deleted, what is half dead
//! written anew, the owner's life told, an absent engine tried again.
//!
//! - C1: a round has a bound: [`ROUND_UNITS`] written anew, and a deadline for each call.
//! - C2: a copy counts after it is acknowledged, and the copied object can die only then (H1, L5).
//! - C3: what failed is done again in a later round: deletions stay listed until acknowledged.
//! - C4: the number of a put that failed is deleted one to two deadlines later, when the put can no
//!   longer be under way.

use std::time::{Duration, Instant};

use crate::engine::EngineError;
use crate::far::Far;
use crate::link::Failure;
use crate::log::Piece;
use crate::map::UNIT;
use crate::seal::SEALED;

/// Most units that a round writes anew: 32 MiB.
const ROUND_UNITS: usize = (32 << 20) / UNIT;

/// Most objects of one deletion.
const DELETE_MAX: usize = 512;

/// Units between two pieces of an object that are rather fetched than asked around: 64 KiB.
const GAP_MAX: u32 = 128;

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
        if self.link.absent() {
            self.probe(now, round);
        }
        if !self.link.absent() {
            round.probe = None;
            self.renew(now, round);
            self.age(now, round);
            self.clean();
            self.delete_dead();
        }
        let next = round.probe.map_or(self.options.tend, |(at, _)| at - now);
        next.min(self.options.tend)
    }

    /// Tries an absent engine with an object of one unit, if it is time.
    fn probe(&self, now: Instant, round: &mut Round) {
        let options = &self.options;
        let (at, wait) = *round.probe.get_or_insert((now + options.probe, options.probe));
        if now < at {
            return;
        }
        if self.put_once(&[0; UNIT], self.until()).map(|number| self.log().doom(number)).is_ok() {
            self.link.set_absent(false);
        } else {
            let wait = (2 * wait).min(options.probe_max);
            round.probe = Some((now + wait, wait));
        }
    }

    fn renew(&self, now: Instant, round: &mut Round) {
        if round.renew.is_none_or(|at| now >= at) && self.link.renew(self.until()).is_ok() {
            round.renew = Some(now + self.options.renew);
        }
    }

    /// Lets the numbers of puts that failed become dead (C4).
    fn age(&self, now: Instant, round: &mut Round) {
        if round.age.is_none_or(|at| now >= at) {
            self.log().age();
            round.age = Some(now + self.options.deadline);
        }
    }

    /// Writes living pieces of sparse and small objects anew (C1, C2).
    fn clean(&self) {
        let mut written = 0;
        while written < ROUND_UNITS {
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
        // A full log has room again when one of these objects is dead; this one is then dead.
        let _ = self.log().relocate(number, &kept);
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
            self.link.get(first.spot.number, offset, &mut sealed, until, |sealed| {
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
            })
        })
    }

    /// Deletes what is dead (C3).
    fn delete_dead(&self) {
        loop {
            let numbers = self.log().take_dead(DELETE_MAX);
            if numbers.is_empty() {
                return;
            }
            if self.link.delete(&numbers, self.until()).is_err() {
                numbers.into_iter().for_each(|number| self.log().doom(number));
                return;
            }
        }
    }

    /// Deletes everything, as far as the engine does so within one deadline.
    pub(crate) fn remove_all(&self) {
        let until = self.until();
        self.log().discard_all();
        loop {
            let numbers = self.log().take_dead(DELETE_MAX);
            if numbers.is_empty()
                || self.attempts(until, |until| self.link.delete(&numbers, until)).is_err()
            {
                return;
            }
        }
    }
}

/// Returns whether two pieces that follow each other are fetched together.
fn near(before: &Piece, after: &Piece) -> bool {
    let end = before.spot.index + before.span.len;
    before.spot.number == after.spot.number && (end..=end + GAP_MAX).contains(&after.spot.index)
}
