//! Where the time of a round on one pool goes, by lock and outside of locks.

use super::measure::{
    Contestant, Host, MIGRATE, Watched, Worker, in_turns, is_exclusive, pace, watch,
};
use super::simulate::{Family, Step};
use crate::experiment::Error;
use crate::experiment::content::Content;

/// With fewer locks a round that come from another core, what moves is not put to the locks.
const BOUNCES_MIN: f64 = 0.1;

/// Where the time of a round on one pool goes.
#[derive(Clone, Debug)]
pub(super) struct Profile {
    /// Time of a round of one thread, and of two that share the pool.
    pub(super) round_ns: [f64; 2],
    /// By how much two threads are slower than one that share neither pool nor objects, for what
    /// caches and memory allow.
    pub(super) slowdown: f64,
    /// Part of a single thread's round outside of locks.
    pub(super) private_ns: f64,
    /// Locks by name.
    sections: Vec<Section>,
    /// Times that a round takes the migrate lock for reading.
    pub(super) migrate_reads: f64,
    /// The time by which a hold is longer if another core held the lock before.
    pub(super) moved_ns: f64,
    /// The cost, outside locks, of lines that another core wrote last.
    pub(super) fetch_ns: f64,
}

/// All locks of one name.
#[derive(Clone, Debug)]
pub(super) struct Section {
    name: &'static str,
    family: Family,
    /// Times that one of them is taken in a round.
    acquisitions: f64,
    /// Time of a hold.
    hold_ns: f64,
}

impl Profile {
    /// Measures a contestant, in so many batches for each number.
    pub(super) fn measure(
        contestant: Contestant,
        content: &Content,
        host: &Host,
        (batches, seed): (usize, u64),
    ) -> Result<Self, Error> {
        let pools = [contestant.pool()?, contestant.pool()?];
        let worker = |pool: usize, number: u32| {
            Worker::new(&*pools[pool], content, seed.wrapping_add(u64::from(number) << 32))
        };
        let apart_ns = pace(2, batches, |number| worker(number as usize, number), Worker::round)?;
        let two_ns = pace(2, batches, |number| worker(0, number), Worker::round)?;
        let alone_ns = pace(1, batches, |number| worker(0, number), Worker::round)?;
        let mut alone = worker(0, 0)?;
        let watched = watch(&*pools[0], batches, || alone.round())?;
        let turns = |other: usize| {
            let mut workers = [worker(0, 0)?, worker(other, 1)?];
            pools.iter().for_each(|pool| pool.watch_locks(true));
            let turns = in_turns(batches, &mut workers, |call, worker| worker.call(call))?;
            let stats = pools[0].lock_stats();
            let bounces = stats.iter().filter(is_exclusive).map(|stat| stat.acq_bounces);
            Ok::<_, Error>((turns.round_ns, bounces.sum::<u64>() as f64 / turns.rounds as f64))
        };
        let (own_ns, _) = turns(1)?;
        let (shared_ns, bounces) = turns(0)?;
        let mut profile = Self::new(&watched, alone_ns, host);
        profile.round_ns[1] = two_ns;
        profile.slowdown = (apart_ns / alone_ns).max(1.0);
        let moved = shared_ns - own_ns - profile.migrate_reads * host.transfer_ns;
        if bounces >= BOUNCES_MIN {
            profile.moved_ns = (moved / bounces - host.transfer_ns).max(0.0);
        } else {
            profile.fetch_ns = moved.max(0.0);
        }
        Ok(profile)
    }

    /// Returns where the time of a round of one thread goes.
    fn new(watched: &Watched, round_ns: f64, host: &Host) -> Self {
        let taken = |name: &'static str| {
            let of = watched.acquisitions.iter().filter(move |((other, _), _)| *other == name);
            of.map(|(_, &taken)| taken)
        };
        let section = |(&name, &hold_ns): (&&'static str, &f64)| Section {
            name,
            family: match name {
                "cpu" => Family::Own,
                _ => Family::Weighted(taken(name).collect()),
            },
            acquisitions: taken(name).sum(),
            hold_ns: (hold_ns - host.empty_hold_ns).max(0.0),
        };
        let exclusive = watched.hold_ns.iter().filter(|(name, _)| **name != MIGRATE);
        let mut profile = Self {
            round_ns: [round_ns; 2],
            slowdown: 1.0,
            private_ns: 0.0,
            sections: exclusive.map(section).collect(),
            migrate_reads: taken(MIGRATE).sum(),
            moved_ns: 0.0,
            fetch_ns: 0.0,
        };
        profile.private_ns = (round_ns - profile.held_ns()).max(0.0);
        profile
    }

    /// Returns how long a round holds locks.
    pub(super) fn held_ns(&self) -> f64 {
        self.sections.iter().map(|section| section.acquisitions * section.hold_ns).sum()
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
        // A share for each time that something happens: ones, and the rest.
        let shares = |times: f64| {
            (0..times.ceil() as usize).map(move |index| (times - index as f64).min(1.0))
        };
        let mut steps = Vec::new();
        for (family, section) in self.sections.iter().enumerate() {
            let (ns, moved_ns) = (slowdown * section.hold_ns, self.moved_ns);
            let hold = |share| vec![Step::Hold { share, family, ns, moved_ns }];
            steps.extend(shares(section.acquisitions).map(hold));
        }
        steps.extend(shares(self.migrate_reads).map(|share| vec![Step::Count { share }; 2]));
        if self.fetch_ns > 0.0 {
            steps.push(vec![Step::Fetch { ns: self.fetch_ns }]);
        }
        let work = (self.private_ns + more_ns) * slowdown / steps.len().max(1) as f64;
        let step = |steps: Vec<Step>| std::iter::once(Step::Work { ns: work }).chain(steps);
        steps.into_iter().flat_map(step).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: Host = Host {
        transfer_ns: 50.0,
        look_ns: 20.0,
        yield_ns: 500.0,
        empty_hold_ns: 25.0,
        codec_ns: 5000.0,
    };

    /// A round of 1000 ns with 2.5 holds of a pool's lock, 160 ns each.
    fn watched() -> Watched {
        let mut watched = Watched::default();
        watched.acquisitions.insert(("pool", 0), 2.5);
        watched.hold_ns.insert("pool", 185.0);
        watched
    }

    #[test]
    fn a_profile_says_where_the_time_goes() {
        let profile = Profile::new(&watched(), 1000.0, &HOST);
        assert_eq!((profile.held_ns(), profile.private_ns), (400.0, 600.0));
        assert_eq!(
            (profile.families(), profile.migrate_reads),
            (vec![Family::Weighted(vec![2.5])], 0.0)
        );
        let mut classes = watched();
        classes.acquisitions.insert((MIGRATE, 0), 2.0);
        classes.hold_ns.insert(MIGRATE, 85.0);
        for (index, taken) in [(7, 1.5), (3, 0.5)] {
            classes.acquisitions.insert(("class", index), taken);
        }
        classes.hold_ns.insert("class", 35.0);
        let profile = Profile::new(&classes, 1000.0, &HOST);
        let families = [Family::Weighted(vec![0.5, 1.5]), Family::Weighted(vec![2.5])];
        assert_eq!((profile.families(), profile.migrate_reads), (families.to_vec(), 2.0));
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
        let mut profile = Profile::new(&watched(), 1000.0, &HOST);
        profile.slowdown = 1.25;
        for (more_ns, cores, expected) in [(0.0, 1, 1000.0), (500.0, 1, 1500.0), (0.0, 2, 1250.0)] {
            let time = time(profile.program(more_ns, cores));
            assert!((time - expected).abs() < 1e-9, "{time} {expected}");
        }
    }
}
