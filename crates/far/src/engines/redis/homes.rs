//! Which homes answer: those that did not are asked last for a while.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::trouble::Trouble;
use crate::link::lock;

/// How long a home is asked last after a first failure; twice as long after each further one.
const SHUN_MIN: Duration = Duration::from_secs(1);
const SHUN_MAX: Duration = Duration::from_secs(30);

/// What is known of each home.
#[derive(Debug)]
pub(super) struct Homes(Mutex<Vec<Health>>);

#[derive(Clone, Copy, Debug)]
struct Health {
    /// Until when it is asked last, and for how long that was; none for one that is well.
    shunned: Option<(Instant, Duration)>,
}

impl Health {
    fn is_shunned(self, now: Instant) -> bool {
        self.shunned.is_some_and(|(until, _)| now < until)
    }
}

impl Homes {
    pub(super) fn new(count: usize) -> Self {
        Self(Mutex::new(vec![Health { shunned: None }; count]))
    }

    /// Returns all homes in the order in which `number` asks for them.
    pub(super) fn order(&self, number: u64) -> Vec<usize> {
        let count = self.all().len();
        let first = usize::try_from(number % count as u64).expect("less than a count");
        self.healthy_first((0..count).map(|step| (first + step) % count).collect())
    }

    /// Returns `homes` with those last that did not answer. One whose time is over is let in
    /// again, by one caller: for the others its time begins anew.
    pub(super) fn healthy_first(&self, mut homes: Vec<usize>) -> Vec<usize> {
        let now = Instant::now();
        let mut all = self.all();
        homes.sort_by_key(|home| all[*home].is_shunned(now));
        for home in &homes {
            if let Some((until, long)) = &mut all[*home].shunned
                && *until <= now
            {
                *until = now + *long;
            }
        }
        homes
    }

    /// Remembers whether a home answered. One that refuses answers.
    pub(super) fn learn(&self, home: usize, trouble: Option<&Trouble>) {
        let health = &mut self.all()[home];
        match trouble {
            None | Some(Trouble::Refused(_)) => health.shunned = None,
            Some(_) => {
                let now = Instant::now();
                let long = match health.shunned {
                    None => SHUN_MIN,
                    Some((_, long)) => (2 * long).min(SHUN_MAX),
                };
                health.shunned = Some((now + long, long));
            }
        }
    }

    fn all(&self) -> MutexGuard<'_, Vec<Health>> {
        lock(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_turns_and_a_home_that_fails_comes_last() {
        let homes = Homes::new(3);
        assert_eq!(homes.order(0), [0, 1, 2]);
        assert_eq!(homes.order(4), [1, 2, 0]);
        homes.learn(1, Some(&Trouble::Late));
        assert_eq!(homes.order(4), [2, 0, 1]);
        homes.learn(1, Some(&Trouble::Refused("full".to_owned())));
        assert_eq!(homes.order(4), [1, 2, 0]);
    }
}
