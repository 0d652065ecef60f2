//! Pages that found no room, and the process that is ended for that: the *victim*, which the
//! evictor chooses ([`crate::reclaim::victim`]).
//!
//! Compressing threads say that a page found no room; only the evictor chooses, and holds no other
//! lock then.

use std::time::{Duration, Instant};

use crate::link::SpaceId;

/// How long a victim may take to end before another one is chosen: its end may wait for a disk.
const PATIENCE: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Starving {
    /// Why a page found no room, if no victim was chosen since.
    wanted: Option<String>,
    /// Victims whose pages are still there.
    dying: Vec<SpaceId>,
    /// When the last of them was chosen.
    since: Option<Instant>,
    /// Counts victims whose pages are gone.
    turn: u64,
}

impl Starving {
    /// Returns the turn, which ends when the pages of a victim are gone.
    pub(crate) fn turn(&self) -> u64 {
        self.turn
    }

    /// Records that a page found no room; not if more room was made since that turn.
    pub(crate) fn want(&mut self, turn: u64, why: String) {
        if turn == self.turn && !self.is_waiting() {
            self.wanted.get_or_insert(why);
        }
    }

    /// Returns whether a victim is about to end.
    pub(crate) fn is_waiting(&self) -> bool {
        self.since.is_some_and(|since| !self.dying.is_empty() && since.elapsed() < PATIENCE)
    }

    /// Returns why a victim is to be chosen, if one is, and those that must not be chosen again.
    pub(crate) fn take(&mut self) -> Option<(String, Vec<SpaceId>)> {
        let why = self.wanted.take()?;
        // Another page may have found no room while the last one was being chosen.
        (!self.is_waiting()).then(|| (why, self.dying.clone()))
    }

    /// Records that this space was chosen.
    pub(crate) fn chosen(&mut self, space: SpaceId) {
        self.dying.push(space);
        self.since = Some(Instant::now());
    }

    /// Records that the pages of a space are gone.
    pub(crate) fn gone(&mut self, space: SpaceId) {
        let before = self.dying.len();
        self.dying.retain(|&dying| dying != space);
        if self.dying.len() < before {
            self.turn += 1;
            self.wanted = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_victim_at_a_time() {
        let mut starving = Starving::default();
        let why = || "full".to_owned();
        assert_eq!(starving.take(), None);
        starving.want(0, why());
        starving.want(0, "again".to_owned());
        assert_eq!(starving.take(), Some((why(), vec![])));
        starving.want(0, "meanwhile".to_owned());
        starving.chosen(SpaceId(1));
        assert!(starving.is_waiting() && starving.take().is_none());
        starving.want(0, why());
        assert!(starving.is_waiting() && starving.take().is_none());
        starving.gone(SpaceId(2));
        assert!(starving.is_waiting(), "another one");
        starving.gone(SpaceId(1));
        assert!(!starving.is_waiting());
        starving.want(0, why());
        assert_eq!(starving.take(), None, "it was tried before there was room");
        starving.want(starving.turn(), why());
        assert_eq!(starving.take(), Some((why(), vec![])));
    }

    #[test]
    fn a_victim_that_does_not_end_is_passed_over_after_a_while() {
        let mut starving = Starving::default();
        starving.chosen(SpaceId(1));
        starving.since = starving.since.and_then(|since| since.checked_sub(PATIENCE));
        assert!(!starving.is_waiting());
        starving.want(0, "full".to_owned());
        assert_eq!(starving.take(), Some(("full".to_owned(), vec![SpaceId(1)])));
    }
}
