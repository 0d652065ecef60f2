//! A simulator of lock designs: how many rounds a second cores get done that share locks and cache
//! lines, on machines that are not at hand.
//!
//! Discrete events, no clock and no threads; one seed gives one result. A [`Machine`] has the cost
//! of fetching a line from another core. [`Crew`]s of cores go through the [`Step`]s of their
//! program in a closed loop. Times are given in nanoseconds and kept in picoseconds.
//!
//! A lock is a test-and-set spin lock, as those of the pools are:
//! - Its word stays in the cache of its last holder, who can take it again at no cost, until a
//!   waiting core looks, however long that has waited: unfair, as such locks are.
//! - Any other core that takes it fetches the word, and holds the lock for longer because the lines
//!   that it guards come from another core, too.
//! - A waiting core looks again and again; after a release all of them fetch the word, one after
//!   the other, before one of them, by chance, gets the lock: the hand-over is the dearer the more
//!   are waiting. Meanwhile their looks take the line away from the holder, too, whose data begin
//!   beside the word. Those that have lost patience gave their processor away and look seldom.
//!
//! Private work takes an exponentially distributed time; holds are drawn evenly from half of their
//! mean to one and a half.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use zfold_compare::rng::SplitMix64;

#[cfg(test)]
mod tests;

/// A machine of clusters of cores; the cores of a cluster are near each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    /// Cores of a cluster, at least one.
    pub(super) cluster: u32,
    /// Time to fetch a line from another core of the cluster, in nanoseconds.
    pub(super) transfer_ns: f64,
    /// How much more lines from other clusters cost.
    pub(super) far_factor: f64,
    /// Whether cores get a lock in the order in which they came, as from ticket and queued locks;
    /// otherwise the core that first sees it free.
    pub(super) fair: bool,
    /// Time between two looks of a waiting core, in nanoseconds.
    pub(super) look_ns: f64,
    /// Added to a claim of a lock's word for every other core that looks at it, in transfers from
    /// that core; 0 for queued locks, whose waiters look at a line of their own.
    pub(super) waiter_transfers: f64,
    /// Time after which a waiting core gives its processor away between looks, in nanoseconds;
    /// infinite in a kernel.
    pub(super) patience_ns: f64,
    /// Time between two looks from then on, in nanoseconds.
    pub(super) yield_ns: f64,
}

impl Machine {
    /// Returns by what factor a line costs `core` more that `owner` used last than one that comes
    /// from near; 0 if it was `core` itself, or none.
    fn distance(&self, owner: Option<u32>, core: u32) -> f64 {
        match owner {
            None => 0.0,
            Some(owner) if owner == core => 0.0,
            Some(owner) if owner / self.cluster == core / self.cluster => 1.0,
            Some(_) => self.far_factor,
        }
    }
}

/// Locks of one kind.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Family {
    /// One of these, each with the chance that its weight gives it: the locks of size classes, or
    /// a single lock. At least one weight is above zero.
    Weighted(Vec<f64>),
    /// Every core's own.
    Own,
}

/// A step of a core; `share` is the chance that a round has this step, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    /// Works without touching anything that others write, for this time on average.
    Work { ns: f64 },
    /// Uses lines that any core may have written last: the time if that is of the same cluster.
    Fetch { ns: f64 },
    /// Takes one lock of a family, by its index, holds it and gives it back. The mean time is that
    /// if this core was the last holder; `moved_ns` is added if another of its cluster was.
    Hold { share: f64, family: usize, ns: f64, moved_ns: f64 },
    /// Changes a counter that all cores share by one atomic operation, as readers of a
    /// reader-writer lock do on their way in and on their way out.
    Count { share: f64 },
}

/// Cores that run the same program.
#[derive(Clone, Debug)]
pub(super) struct Crew {
    pub(super) cores: u32,
    /// Steps of a round, at least one that takes time.
    pub(super) program: Vec<Step>,
}

/// The events until the first crew had done its rounds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Run {
    /// Simulated time in nanoseconds.
    pub(super) elapsed_ns: f64,
    /// Rounds that each core finished, crew after crew.
    pub(super) rounds: Vec<u64>,
    /// Times that a lock of each family was taken.
    pub(super) acquisitions: Vec<u64>,
    /// Of these, those that had to wait.
    pub(super) contentions: Vec<u64>,
}

/// A point in time, in picoseconds.
type Time = u64;

fn picoseconds(ns: f64) -> Time {
    (ns * 1e3).round() as Time
}

/// An event; those of one time happen in the order in which they were planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    at: Time,
    number: u64,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// A core goes on with its next step.
    Next { core: u32 },
    /// The holder of a lock gives it back.
    Release { lock: usize },
    /// A lock's word reaches the waiting core that looked first, unless another overtook it.
    Grant { lock: usize, winner: u32, turn: u64 },
}

#[derive(Debug, Default)]
struct Core {
    crew: usize,
    step: usize,
    rounds: u64,
    /// Means of the hold that this core waits to begin.
    hold: (f64, f64),
}

#[derive(Debug, Default)]
struct Lock {
    family: usize,
    holder: Option<u32>,
    /// The core that holds it or did last.
    owner: Option<u32>,
    /// The waiting cores, and since when.
    waiters: Vec<(u32, Time)>,
    /// If it is free and others wait: when the first of them sees it. A core that sees it before
    /// that overtakes, as its owner does at once.
    seen: Time,
    /// Counts how often it was taken or released.
    turn: u64,
}

struct Engine<'a> {
    machine: &'a Machine,
    families: &'a [Family],
    crews: &'a [Crew],
    /// Index of the first lock of each family.
    first_lock: Vec<usize>,
    rng: SplitMix64,
    now: Time,
    events: BinaryHeap<Reverse<Event>>,
    planned: u64,
    cores: Vec<Core>,
    locks: Vec<Lock>,
    /// The counter's last owner, and when it is free.
    counter: (Option<u32>, Time),
    /// Rounds that the first crew has still to do.
    left: u64,
    acquisitions: Vec<u64>,
    contentions: Vec<u64>,
}

/// Lets `crews` run until the first of them has done `rounds` rounds in all.
///
/// With locks that are not fair, another crew that hardly works between its holds can keep the
/// first from a lock for as good as ever; make them fair if there are several crews.
///
/// # Panics
/// If there is no core, or a program names a family that is not in `families`.
pub(super) fn run(
    machine: &Machine,
    families: &[Family],
    crews: &[Crew],
    rounds: u64,
    seed: u64,
) -> Run {
    let mut engine = Engine::new(machine, families, crews, rounds, seed);
    while engine.left > 0 {
        let Reverse(event) = engine.events.pop().expect("every core has an event or waits");
        engine.now = event.at;
        match event.what {
            What::Next { core } => engine.next(core),
            What::Release { lock } => engine.release(lock),
            What::Grant { lock, winner, turn } => engine.grant(lock, winner, turn),
        }
    }
    Run {
        elapsed_ns: engine.now as f64 / 1e3,
        rounds: engine.cores.iter().map(|core| core.rounds).collect(),
        acquisitions: engine.acquisitions,
        contentions: engine.contentions,
    }
}

impl<'a> Engine<'a> {
    fn new(
        machine: &'a Machine,
        families: &'a [Family],
        crews: &'a [Crew],
        rounds: u64,
        seed: u64,
    ) -> Self {
        let of_crew = |(crew, members): (usize, &Crew)| {
            (0..members.cores).map(move |_| Core { crew, ..Core::default() })
        };
        let cores: Vec<Core> = crews.iter().enumerate().flat_map(of_crew).collect();
        let (mut locks, mut first_lock) = (Vec::new(), Vec::new());
        for (family, of) in families.iter().enumerate() {
            first_lock.push(locks.len());
            let count = match of {
                Family::Weighted(weights) => weights.len(),
                Family::Own => cores.len(),
            };
            locks.extend((0..count).map(|_| Lock { family, ..Lock::default() }));
        }
        let mut engine = Self {
            machine,
            families,
            crews,
            first_lock,
            rng: SplitMix64::new(seed),
            now: 0,
            events: BinaryHeap::new(),
            planned: 0,
            cores,
            locks,
            counter: (None, 0),
            left: rounds,
            acquisitions: vec![0; families.len()],
            contentions: vec![0; families.len()],
        };
        for core in 0..engine.cores.len() as u32 {
            engine.plan(0.0, What::Next { core });
        }
        engine
    }

    /// Plans an event for `ns` nanoseconds from now.
    fn plan(&mut self, ns: f64, what: What) {
        self.planned += 1;
        let at = self.now + picoseconds(ns);
        self.events.push(Reverse(Event { at, number: self.planned, what }));
    }

    /// Returns a number from 0 to 1.
    fn chance(&mut self) -> f64 {
        (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a time drawn around `mean`.
    fn around(&mut self, mean: f64) -> f64 {
        mean * (0.5 + self.chance())
    }

    /// Lets a core begin its next step.
    fn next(&mut self, core: u32) {
        let state = &mut self.cores[core as usize];
        let program = &self.crews[state.crew].program;
        if state.step == program.len() {
            state.step = 0;
            state.rounds += 1;
            self.left -= u64::from(state.crew == 0).min(self.left);
        }
        let step = program[state.step];
        state.step += 1;
        if let Step::Hold { share, .. } | Step::Count { share } = step
            && share < 1.0
            && self.chance() >= share
        {
            return self.plan(0.0, What::Next { core });
        }
        let time = match step {
            // In the interval (0, 1], so that the logarithm is finite.
            Step::Work { ns } => -ns * (1.0 - self.chance()).ln(),
            Step::Fetch { ns } => {
                let writer = self.rng.below(self.cores.len() as u64) as u32;
                self.around(ns * self.machine.distance(Some(writer), core))
            }
            Step::Count { .. } => {
                // Behind those that came first.
                let (owner, free_at) = self.counter;
                let time = self.machine.transfer_ns * self.machine.distance(owner, core);
                let done = free_at.max(self.now) + picoseconds(time);
                self.counter = (Some(core), done);
                (done - self.now) as f64 / 1e3
            }
            Step::Hold { family, ns, moved_ns, .. } => {
                self.cores[core as usize].hold = (ns, moved_ns);
                let lock = self.pick(family, core);
                return self.ask(lock, core);
            }
        };
        self.plan(time, What::Next { core });
    }

    /// Returns the index of a lock of `family` for `core`.
    fn pick(&mut self, family: usize, core: u32) -> usize {
        let first = self.first_lock[family];
        match &self.families[family] {
            Family::Own => first + core as usize,
            Family::Weighted(weights) => {
                let mut place = self.chance() * weights.iter().sum::<f64>();
                let found = weights.iter().position(|weight| {
                    place -= weight;
                    place < 0.0
                });
                first + found.unwrap_or(0)
            }
        }
    }

    /// Lets `core` take a free lock, or wait.
    fn ask(&mut self, index: usize, core: u32) {
        let word_ns = self.claim_ns(index, core);
        let lock = &mut self.locks[index];
        let sees_ns = if lock.owner == Some(core) { 0.0 } else { word_ns };
        let overtakes = !self.machine.fair && self.now + picoseconds(sees_ns) < lock.seen;
        if lock.holder.is_none() && (lock.waiters.is_empty() || overtakes) {
            self.take(index, core, word_ns);
        } else {
            lock.waiters.push((core, self.now));
            self.contentions[lock.family] += 1;
        }
    }

    /// Returns how far from `core` the others are that look at a lock.
    fn looking(&self, index: usize, core: u32) -> impl Iterator<Item = f64> {
        let waiters = self.locks[index].waiters.iter();
        let looks = waiters.filter(move |&&(other, since)| other != core && self.spins(since));
        looks.map(move |&(other, _)| self.machine.distance(Some(other), core))
    }

    /// Returns the time until `core` can change the word of a lock: from the farthest core that
    /// has it, and behind all others that look at it.
    fn claim_ns(&self, index: usize, core: u32) -> f64 {
        let owner = self.machine.distance(self.locks[index].owner, core);
        let farthest = self.looking(index, core).fold(owner, f64::max);
        let crowd = self.machine.waiter_transfers * self.looking(index, core).sum::<f64>();
        self.machine.transfer_ns * (farthest + crowd)
    }

    /// Returns the factor by which cores that look at a lock's word slow its holder down: the
    /// holder writes beside the word, and every look takes the line away.
    fn disturbance(&self, index: usize, core: u32) -> f64 {
        if self.machine.waiter_transfers == 0.0 {
            return 1.0;
        }
        let fetch_ns = self.machine.transfer_ns * self.looking(index, core).fold(0.0, f64::max);
        1.0 + fetch_ns / (self.machine.look_ns + fetch_ns).max(f64::MIN_POSITIVE)
    }

    /// Returns whether a core that waits since then has not lost patience.
    fn spins(&self, since: Time) -> bool {
        ((self.now - since) as f64) < self.machine.patience_ns * 1e3
    }

    /// Gives a lock to `core`, whose hold begins in `word_ns`.
    fn take(&mut self, index: usize, core: u32, word_ns: f64) {
        let (ns, moved_ns) = self.cores[core as usize].hold;
        let disturbed = self.disturbance(index, core);
        let lock = &mut self.locks[index];
        let moved = moved_ns * self.machine.distance(lock.owner, core);
        (lock.holder, lock.owner) = (Some(core), Some(core));
        lock.turn += 1;
        self.acquisitions[lock.family] += 1;
        let hold = self.around((ns + moved) * disturbed);
        self.plan(word_ns + hold, What::Release { lock: index });
    }

    /// Frees a lock, lets the waiting core that looks first fetch it, and the holder go on.
    fn release(&mut self, index: usize) {
        let lock = &mut self.locks[index];
        let core = lock.holder.take().expect("a lock is released by its holder");
        lock.turn += 1;
        let turn = lock.turn;
        if !lock.waiters.is_empty() {
            let (winner, look_ns) = self.first_look(index);
            let fetch_ns = self.machine.transfer_ns * self.machine.distance(Some(core), winner);
            self.locks[index].seen = self.now + picoseconds(look_ns + fetch_ns);
            let time = look_ns + self.claim_ns(index, winner);
            self.plan(time, What::Grant { lock: index, winner, turn });
        }
        self.plan(0.0, What::Next { core });
    }

    /// Returns which waiting core looks first at a free lock, and when.
    fn first_look(&mut self, index: usize) -> (u32, f64) {
        let waiters = &self.locks[index].waiters;
        if self.machine.fair {
            let winner = waiters[0].0;
            return (winner, self.machine.look_ns * self.chance());
        }
        let spinning = waiters.iter().filter(|&&(_, since)| self.spins(since));
        let mut looking: Vec<u32> = spinning.map(|&(core, _)| core).collect();
        // Every look fetches the word.
        let mut interval = self.machine.look_ns + self.machine.transfer_ns;
        if looking.is_empty() {
            looking = waiters.iter().map(|&(core, _)| core).collect();
            interval = self.machine.yield_ns;
        }
        let winner = looking[self.rng.below(looking.len() as u64) as usize];
        (winner, interval * self.chance() / looking.len() as f64)
    }

    /// Gives a lock to the core that looked first, unless another has had it since.
    fn grant(&mut self, index: usize, winner: u32, turn: u64) {
        let lock = &mut self.locks[index];
        if lock.turn == turn {
            lock.waiters.retain(|&(core, _)| core != winner);
            self.take(index, winner, 0.0);
        }
    }
}
