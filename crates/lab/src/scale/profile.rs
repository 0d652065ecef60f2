//! Where the time of one round on one pool goes, by lock and outside of locks.

use std::collections::BTreeMap;

use super::pace::{Pace, median, readings};
use super::sample::{LockUse, Sample};
use crate::simulate::{Family, Step};

/// With fewer locks a round that come from another core, what moves is not put to the locks.
const BOUNCES_MIN: f64 = 0.1;

/// Where the time of a round goes: the median of the samples.
#[derive(Clone, Debug)]
pub(super) struct Profile {
    /// Time of a round on one core.
    pub(super) round_ns: f64,
    /// Part of it outside of locks.
    pub(super) private_ns: f64,
    /// Locks by name.
    sections: Vec<Section>,
    /// Times that a round takes the migrate lock for reading.
    pub(super) migrate_reads: f64,
    /// By how much two threads are slower than one that share neither pool nor objects, for what
    /// caches and memory allow.
    pub(super) slowdown: f64,
    /// Time to fetch a line that another core has written.
    pub(super) transfer_ns: f64,
    /// The time by which a hold is longer if another core held the lock before.
    pub(super) moved_ns: f64,
    /// The cost, outside locks, of lines that another core wrote last.
    pub(super) fetch_ns: f64,
}

/// All locks of one name.
#[derive(Clone, Debug)]
struct Section {
    name: &'static str,
    family: Family,
    /// Times that one of them is taken in a round.
    acquisitions: f64,
    /// Mean time of a hold.
    hold_ns: f64,
}

impl Profile {
    /// Returns the profile of a contestant from its samples, at least one.
    pub(super) fn new(samples: &[Sample]) -> Self {
        let of = |value: &dyn Fn(&Sample) -> f64| median(samples.iter().map(value));
        let run = |run: &dyn Fn(&Sample) -> Pace, number: fn(Pace) -> f64| {
            median(readings(samples.iter().map(run), number).into_iter())
        };
        let rate = |of: &dyn Fn(&Sample) -> Pace| run(of, |run| run.per_second);
        let round_ns = 1e9 / rate(&|sample| sample.alone);
        let mut names: Vec<&'static str> = Vec::new();
        for lock in samples.iter().flat_map(|sample| &sample.locks) {
            if !names.contains(&lock.name) {
                names.push(lock.name);
            }
        }
        let sum = |name: &str, value: &dyn Fn(&LockUse) -> f64| {
            of(&|sample| {
                sample
                    .locks
                    .iter()
                    .filter(|lock| lock.name == name)
                    .map(value)
                    .fold(0.0, |all, one| all + one)
            })
        };
        let migrate_reads = sum("migrate", &|lock| lock.acquisitions);
        names.retain(|&name| name != "migrate");
        let held: f64 = names.iter().map(|name| sum(name, &|lock| lock.held)).sum();
        // Holds with the clock at both ends overlap with less than they do without.
        let part_ns = round_ns / held.max(1.0);
        let section = |&name: &&'static str| {
            let acquisitions = sum(name, &|lock| lock.acquisitions);
            let hold_ns = part_ns * sum(name, &|lock| lock.held) / acquisitions.max(f64::EPSILON);
            Section { name, family: family(name, samples), acquisitions, hold_ns }
        };
        // Threads that were on one processor for a while lose some.
        let bounces = samples.iter().map(|sample| sample.bounces).fold(0.0, f64::max);
        let turns = [0, 1].map(|which| run(&|sample| sample.turns[which], |run| run.mean));
        let transfer_ns = 1e9 / rate(&|sample| sample.transfer);
        let moved = turns[1] - turns[0] - migrate_reads * transfer_ns;
        let by_locks = bounces >= BOUNCES_MIN;
        let moved_ns = if by_locks { moved / bounces - transfer_ns } else { 0.0 };
        Self {
            round_ns,
            private_ns: round_ns - part_ns * held,
            sections: names.iter().map(section).collect(),
            migrate_reads,
            slowdown: 2.0 * rate(&|sample| sample.alone) / rate(&|sample| sample.apart),
            transfer_ns,
            moved_ns: moved_ns.max(0.0),
            fetch_ns: if by_locks { 0.0 } else { moved.max(0.0) },
        }
    }

    /// Returns the profile at the speed that the machine had when `sample` was measured.
    pub(super) fn at(&self, sample: &Sample) -> Self {
        let transfer_ns = 1e9 / sample.transfer.per_second;
        let farther = transfer_ns / self.transfer_ns;
        Self {
            slowdown: 2.0 * sample.alone.per_second / sample.apart.per_second,
            transfer_ns,
            moved_ns: self.moved_ns * farther,
            fetch_ns: self.fetch_ns * farther,
            ..self.times(1e9 / sample.alone.per_second / self.round_ns)
        }
    }

    /// Returns the profile with all times multiplied by `factor`, except those of transfers and
    /// their consequences.
    fn times(&self, factor: f64) -> Self {
        let section =
            |section: &Section| Section { hold_ns: section.hold_ns * factor, ..section.clone() };
        Self {
            round_ns: self.round_ns * factor,
            private_ns: self.private_ns * factor,
            sections: self.sections.iter().map(section).collect(),
            ..self.clone()
        }
    }

    /// Returns the profile of a machine that is slower by `factor` in everything.
    pub(super) fn slower(&self, factor: f64) -> Self {
        Self {
            transfer_ns: self.transfer_ns * factor,
            moved_ns: self.moved_ns * factor,
            fetch_ns: self.fetch_ns * factor,
            ..self.times(factor)
        }
    }

    /// Returns the profile with locks that are held for `hold_ns` each.
    pub(super) fn with_holds(&self, hold_ns: f64) -> Self {
        let section = |section: &Section| Section { hold_ns, ..section.clone() };
        Self { sections: self.sections.iter().map(section).collect(), ..self.clone() }
    }

    /// Returns the index of the locks of a name among the [`Self::families`].
    pub(super) fn family(&self, name: &str) -> Option<usize> {
        self.sections.iter().position(|section| section.name == name)
    }

    /// Returns the locks for the simulator.
    pub(super) fn families(&self) -> Vec<Family> {
        self.sections.iter().map(|section| section.family.clone()).collect()
    }

    /// Returns a round for the simulator: all sections with equal parts of the private work and
    /// of `more_ns` between them, slowed down if there are several `cores`.
    pub(super) fn program(&self, more_ns: f64, cores: u32) -> Vec<Step> {
        let slowdown = if cores == 1 { 1.0 } else { self.slowdown };
        let mut steps = Vec::new();
        for (family, section) in self.sections.iter().enumerate() {
            let (ns, moved_ns) = (slowdown * section.hold_ns, self.moved_ns);
            let hold = |share| vec![Step::Hold { share, family, ns, moved_ns }];
            steps.extend(shares(section.acquisitions).map(hold));
        }
        let count = |share| vec![Step::Count { share, counter: 0 }; 2];
        steps.extend(shares(self.migrate_reads).map(count));
        if self.fetch_ns > 0.0 {
            steps.push(vec![Step::Fetch { ns: self.fetch_ns }]);
        }
        let work = (self.private_ns + more_ns) * slowdown / steps.len().max(1) as f64;
        let step = |steps: Vec<Step>| std::iter::once(Step::Work { ns: work }).chain(steps);
        steps.into_iter().flat_map(step).collect()
    }

    /// Returns how many locks a round takes, and how long it holds them together.
    pub(super) fn locked(&self) -> (f64, f64) {
        let held = |section: &Section| section.acquisitions * section.hold_ns;
        let acquisitions = self.sections.iter().map(|section| section.acquisitions).sum();
        (acquisitions, self.sections.iter().map(held).sum())
    }
}

/// Returns a share for each time that something happens which happens `times` in a round: ones, and
/// the rest.
fn shares(times: f64) -> impl Iterator<Item = f64> {
    (0..times.ceil() as usize).map(move |index| (times - index as f64).min(1.0))
}

/// Returns the locks called `name`: a CPU's own, or one of as many as were seen, by how often each
/// was taken.
fn family(name: &str, samples: &[Sample]) -> Family {
    if name == "cpu" {
        return Family::Own;
    }
    let mut weights = BTreeMap::new();
    for lock in samples.iter().flat_map(|sample| &sample.locks) {
        if lock.name == name {
            *weights.entry(lock.index).or_insert(0.0) += lock.acquisitions;
        }
    }
    Family::Weighted(weights.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(per_second: f64, mean: f64) -> Pace {
        Pace { per_second, mean, disturbed: false }
    }

    /// A round of 1000 ns, 400 ns of it under one pool lock that is taken 2.5 times.
    fn sample() -> Sample {
        Sample {
            transfer: run(2e7, 0.0),
            alone: run(1e6, 0.0),
            measured: [run(1e6, 0.0), run(1.2e6, 0.0)],
            apart: run(1.6e6, 0.0),
            turns: [run(1e5, 1000.0), run(1e5, 1500.0)],
            bounces: 2.0,
            locks: vec![LockUse { name: "pool", index: 0, acquisitions: 2.5, held: 0.4 }],
        }
    }

    #[test]
    fn a_profile_says_where_the_time_goes() {
        let profile = Profile::new(&[sample()]);
        assert_eq!((profile.round_ns, profile.private_ns), (1000.0, 600.0));
        assert_eq!(profile.locked(), (2.5, 400.0));
        assert_eq!((profile.transfer_ns, profile.slowdown), (50.0, 1.25));
        // 500 ns more for two locks, each of which takes a transfer for its word.
        assert_eq!((profile.moved_ns, profile.fetch_ns), (200.0, 0.0));
        assert_eq!(profile.family("pool"), Some(0));
        assert_eq!(profile.family("class"), None);
    }

    #[test]
    fn without_locks_that_move_lines_are_fetched() {
        let alone = Sample { bounces: 0.0, ..sample() };
        let profile = Profile::new(&[alone]);
        assert_eq!((profile.moved_ns, profile.fetch_ns), (0.0, 500.0));
    }

    #[test]
    fn readers_take_a_counter_and_no_lock() {
        let migrate = LockUse { name: "migrate", index: 0, acquisitions: 2.0, held: 0.3 };
        let mut hierarchical = sample();
        hierarchical.locks.push(migrate);
        let profile = Profile::new(&[hierarchical]);
        assert_eq!(profile.migrate_reads, 2.0);
        assert_eq!(profile.families().len(), 1);
        // Two of the transfers are of the counter.
        assert_eq!(profile.moved_ns, 150.0);
        let counts = |step: &&Step| matches!(step, Step::Count { .. });
        assert_eq!(profile.program(0.0, 1).iter().filter(counts).count(), 4);
    }

    #[test]
    fn a_program_takes_the_time_of_its_round() {
        let time = |program: Vec<Step>| -> f64 {
            let of = |step: Step| match step {
                Step::Work { ns } => ns,
                Step::Hold { share, ns, .. } => share * ns,
                _ => 0.0,
            };
            program.into_iter().map(of).sum()
        };
        let profile = Profile::new(&[sample()]);
        assert!((time(profile.program(0.0, 1)) - 1000.0).abs() < 1e-9);
        assert!((time(profile.program(500.0, 1)) - 1500.0).abs() < 1e-9);
        assert!((time(profile.program(0.0, 2)) - 1250.0).abs() < 1e-9);
        assert!((time(profile.slower(3.0).program(0.0, 1)) - 3000.0).abs() < 1e-9);
        let held = time(profile.with_holds(1000.0).program(0.0, 1));
        assert!((held - 3100.0).abs() < 1e-9, "{held}");
    }

    #[test]
    fn a_profile_takes_the_speed_of_a_sample() {
        let slow = Sample { alone: run(5e5, 0.0), transfer: run(1e7, 0.0), ..sample() };
        let profile = Profile::new(&[sample()]).at(&slow);
        assert_eq!((profile.round_ns, profile.locked().1), (2000.0, 800.0));
        assert_eq!((profile.transfer_ns, profile.moved_ns), (100.0, 400.0));
    }

    #[test]
    fn locks_are_weighted_by_how_often_they_were_taken() {
        let class = |index, acquisitions| LockUse { name: "class", index, acquisitions, held: 0.1 };
        let mut classes = sample();
        classes.locks = vec![class(7, 1.5), class(3, 0.5)];
        assert_eq!(family("class", &[classes]), Family::Weighted(vec![0.5, 1.5]));
        assert_eq!(family("cpu", &[sample()]), Family::Own);
    }
}
