//! Which homes answer: those that did not answer are asked last for a while.
//!
//! All of it is advice: a request to a home that is away fails by its own deadline, and one to a
//! home that is back succeeds, whatever is noted here. The lock is held for a look or a note, and
//! no request is made under it.

use std::time::{Duration, Instant};

use zfold_store::pool::Lock;

use super::trouble::Trouble;

/// How long a home is asked last after a first failure; twice as long after each further one.
const SHUN_MIN: Duration = Duration::from_secs(1);
const SHUN_MAX: Duration = Duration::from_secs(30);

/// How far two failures with no answer between them lie apart when a home counts as away. What is
/// shorter is a pause.
const AWAY_AFTER: Duration = Duration::from_secs(3);

/// What is known of each home; none of one that is well.
#[derive(Debug)]
pub(super) struct Homes(Lock<Vec<Option<Shunned>>>);

/// A home that did not answer.
#[derive(Clone, Copy, Debug)]
struct Shunned {
    /// The first failure and the last one.
    since: Instant,
    failed: Instant,
    /// Until when it is asked last, and for how long that was.
    until: Instant,
    long: Duration,
}

impl Homes {
    pub(super) fn new(count: usize) -> Self {
        Self(Lock::new(vec![None; count]))
    }

    /// Returns all homes in the order in which `number` asks for them.
    pub(super) fn order(&self, number: u64) -> Vec<usize> {
        let count = self.0.lock().len();
        let first = usize::try_from(number % count as u64).expect("less than a count");
        self.healthy_first((0..count).map(|step| (first + step) % count).collect())
    }

    /// Returns `homes` with those last that did not answer. One whose time is over is let in
    /// again, by one caller: for the others its time begins anew.
    pub(super) fn healthy_first(&self, mut homes: Vec<usize>) -> Vec<usize> {
        let now = Instant::now();
        let mut all = self.0.lock();
        homes.sort_by_key(|home| all[*home].is_some_and(|shunned| now < shunned.until));
        for home in &homes {
            if let Some(shunned) = &mut all[*home]
                && shunned.until <= now
            {
                shunned.until = now + shunned.long;
            }
        }
        homes
    }

    /// Remembers whether a home answered at `now`; one that refuses answers. Returns whether this
    /// is the first answer after a failure.
    pub(super) fn learn(&self, home: usize, trouble: Option<&Trouble>, now: Instant) -> bool {
        let known = &mut self.0.lock()[home];
        match trouble {
            None | Some(Trouble::Refused(_)) => known.take().is_some(),
            Some(_) => {
                let (since, long) = match *known {
                    None => (now, SHUN_MIN),
                    Some(Shunned { since, long, .. }) => (since, (2 * long).min(SHUN_MAX)),
                };
                *known = Some(Shunned { since, failed: now, until: now + long, long });
                false
            }
        }
    }

    /// Returns whether a caller that can do without a home should ask it now.
    pub(super) fn admits(&self, home: usize) -> bool {
        let now = Instant::now();
        self.0.lock()[home].is_none_or(|shunned| shunned.until <= now)
    }

    /// Returns the homes that are away.
    pub(super) fn away(&self) -> Vec<usize> {
        let is_away = |shunned: &Shunned| shunned.failed - shunned.since >= AWAY_AFTER;
        let all = self.0.lock();
        (0..all.len()).filter(|home| all[*home].as_ref().is_some_and(is_away)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_turns_and_a_home_that_fails_comes_last() {
        let (homes, now) = (Homes::new(3), Instant::now());
        assert_eq!(homes.order(0), [0, 1, 2]);
        assert_eq!(homes.order(4), [1, 2, 0]);
        assert!(!homes.learn(1, Some(&Trouble::Late), now));
        assert_eq!(homes.order(4), [2, 0, 1]);
        assert!(homes.learn(1, Some(&Trouble::Refused("full".to_owned())), now));
        assert_eq!(homes.order(4), [1, 2, 0]);
    }

    #[test]
    fn a_home_is_away_when_it_fails_again_and_back_with_its_first_answer() {
        let (homes, now) = (Homes::new(2), Instant::now());
        let after = |seconds| now + Duration::from_secs(seconds);
        for (seconds, away) in [(0, &[][..]), (2, &[]), (4, &[1])] {
            homes.learn(1, Some(&Trouble::Late), after(seconds));
            assert_eq!(homes.away(), away, "after {seconds} s");
        }
        assert!(homes.learn(1, None, after(5)), "it is back");
        assert!(!homes.learn(1, None, after(5)), "it was told already");
        assert!(homes.away().is_empty());
    }
}
