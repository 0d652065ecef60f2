//! Statistics of locks, in the columns of the kernel's `/proc/lock_stat`.
//!
//! Every lock counts while it is watched ([`crate::Pool::watch_locks`]). The holder of the lock
//! updates its numbers, so they need no lock of their own and add nothing that threads share.

use std::time::{Duration, Instant};

use crate::sync::cpu;

/// The statistics of one lock while it was watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockStat {
    /// What kind of lock: `pool`, `migrate`, `class`, `cpu`, `depot`.
    pub name: &'static str,
    /// Which one of its kind.
    pub index: usize,
    /// Contended acquisitions whose last holder ran on another CPU.
    pub con_bounces: u64,
    /// Acquisitions that had to wait.
    pub contentions: u64,
    /// Shortest wait.
    pub wait_min: Duration,
    /// Longest wait.
    pub wait_max: Duration,
    /// All waits together.
    pub wait_total: Duration,
    /// Acquisitions, contended or not, whose last holder ran on another CPU.
    pub acq_bounces: u64,
    /// Acquisitions.
    pub acquisitions: u64,
    /// Shortest time that the lock was held.
    pub hold_min: Duration,
    /// Longest time that the lock was held.
    pub hold_max: Duration,
    /// All holds together.
    pub hold_total: Duration,
}

impl LockStat {
    /// Returns the mean wait of a contended acquisition; zero if there was none.
    #[must_use]
    pub fn wait_avg(&self) -> Duration {
        mean(self.wait_total, self.contentions)
    }

    /// Returns the mean time that the lock was held; zero if it never was.
    #[must_use]
    pub fn hold_avg(&self) -> Duration {
        mean(self.hold_total, self.acquisitions)
    }

    /// Returns this and `other` as if they were of one lock; name and index are this one's.
    #[must_use]
    pub fn and(self, other: &Self) -> Self {
        let shortest = |a: Duration, a_of: u64, b: Duration, b_of: u64| match (a_of, b_of) {
            (0, _) => b,
            (_, 0) => a,
            _ => a.min(b),
        };
        Self {
            name: self.name,
            index: self.index,
            con_bounces: self.con_bounces + other.con_bounces,
            contentions: self.contentions + other.contentions,
            wait_min: shortest(self.wait_min, self.contentions, other.wait_min, other.contentions),
            wait_max: self.wait_max.max(other.wait_max),
            wait_total: self.wait_total + other.wait_total,
            acq_bounces: self.acq_bounces + other.acq_bounces,
            acquisitions: self.acquisitions + other.acquisitions,
            hold_min: shortest(
                self.hold_min,
                self.acquisitions,
                other.hold_min,
                other.acquisitions,
            ),
            hold_max: self.hold_max.max(other.hold_max),
            hold_total: self.hold_total + other.hold_total,
        }
    }
}

fn mean(total: Duration, count: u64) -> Duration {
    let nanoseconds = total.as_nanos().checked_div(count.into()).unwrap_or(0);
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

/// The counters of one lock; changed by one thread at a time.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    stat: LockStat,
    /// CPU of the last holder.
    last_cpu: Option<usize>,
}

impl Counters {
    /// Counts an acquisition by the calling thread at `now`, after a wait since `waiting`, if it
    /// had to.
    pub(crate) fn acquired(&mut self, waiting: Option<Instant>, now: Instant) {
        let cpu = cpu::current();
        let bounced = self.last_cpu.replace(cpu).is_some_and(|last| last != cpu);
        let stat = &mut self.stat;
        if let Some(start) = waiting {
            let wait = now - start;
            stat.wait_min = if stat.contentions == 0 { wait } else { stat.wait_min.min(wait) };
            stat.wait_max = stat.wait_max.max(wait);
            stat.wait_total += wait;
            stat.contentions += 1;
            stat.con_bounces += u64::from(bounced);
        }
        stat.acq_bounces += u64::from(bounced);
    }

    /// Counts the end of a hold that began at `since`.
    pub(crate) fn released(&mut self, since: Instant) {
        let (stat, held) = (&mut self.stat, since.elapsed());
        stat.hold_min = if stat.acquisitions == 0 { held } else { stat.hold_min.min(held) };
        stat.hold_max = stat.hold_max.max(held);
        stat.hold_total += held;
        stat.acquisitions += 1;
    }

    /// Returns what was counted for a lock of this name.
    pub(crate) fn report(&self, name: &'static str, index: usize) -> LockStat {
        LockStat { name, index, ..self.stat }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_keep_extremes_of_locks_that_were_used() {
        let used = LockStat {
            contentions: 1,
            wait_min: Duration::from_nanos(5),
            wait_max: Duration::from_nanos(5),
            wait_total: Duration::from_nanos(5),
            acquisitions: 2,
            hold_min: Duration::from_nanos(1),
            hold_max: Duration::from_nanos(3),
            hold_total: Duration::from_nanos(4),
            ..LockStat::default()
        };
        let both = LockStat::default().and(&used).and(&LockStat::default()).and(&used);
        assert_eq!((both.wait_min, both.hold_min), (used.wait_min, used.hold_min));
        assert_eq!((both.acquisitions, both.contentions), (4, 2));
        assert_eq!(both.hold_avg(), Duration::from_nanos(2));
        assert_eq!(LockStat::default().wait_avg(), Duration::ZERO);
    }
}
