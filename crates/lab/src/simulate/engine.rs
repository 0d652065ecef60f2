//! The events: the next step of each core, and which cores wait.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use zfold_compare::rng::SplitMix64;

use super::machine::Machine;
use super::program::{Crew, Family, Run, Step};

/// A point in time, in picoseconds.
type Time = u64;

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
    /// The lock reaches the core that won it, unless the promise was overtaken.
    Grant { lock: usize, winner: u32, promise: u64 },
}

#[derive(Debug)]
struct Core {
    crew: usize,
    step: usize,
    rounds: u64,
    /// Means of the hold that this core waits to begin.
    hold: (f64, f64),
    /// Work that others have handed to it, in nanoseconds, and the last core that did.
    inbox_ns: f64,
    inbox: Line,
}

/// A cache line that is changed by atomic operations, one at a time.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    owner: Option<u32>,
    free_at: Time,
}

#[derive(Debug, Default)]
struct Lock {
    family: usize,
    holder: Option<u32>,
    /// The core that holds it or did last.
    owner: Option<u32>,
    /// The waiting cores, and since when.
    waiters: Vec<(u32, Time)>,
    /// If it is free and others wait: when the first of them has seen it, and the number of the
    /// promise that it will get it; a core that claims it before that overtakes.
    promised: Option<(Time, u64)>,
    promises: u64,
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
    counters: Vec<Line>,
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
#[must_use]
pub fn run(machine: &Machine, families: &[Family], crews: &[Crew], rounds: u64, seed: u64) -> Run {
    let mut engine = Engine::new(machine, families, crews, rounds, seed);
    while engine.left > 0 {
        let Reverse(event) = engine.events.pop().expect("every core has an event or waits");
        engine.now = event.at;
        match event.what {
            What::Next { core } => engine.next(core),
            What::Release { lock } => engine.release(lock),
            What::Grant { lock, winner, promise } => engine.grant(lock, winner, promise),
        }
    }
    Run {
        elapsed_ns: engine.now as f64 / 1e3,
        rounds: engine.cores.iter().map(|core| core.rounds).collect(),
        acquisitions: engine.acquisitions,
        contentions: engine.contentions,
    }
}

fn picoseconds(ns: f64) -> Time {
    (ns * 1e3).round() as Time
}

impl<'a> Engine<'a> {
    fn new(
        machine: &'a Machine,
        families: &'a [Family],
        crews: &'a [Crew],
        rounds: u64,
        seed: u64,
    ) -> Self {
        let mut cores = Vec::new();
        for (crew, members) in crews.iter().enumerate() {
            cores.extend((0..members.cores).map(|_| Core {
                crew,
                step: 0,
                rounds: 0,
                hold: (0.0, 0.0),
                inbox_ns: 0.0,
                inbox: Line::default(),
            }));
        }
        let (mut locks, mut first_lock) = (Vec::new(), Vec::new());
        for (family, of) in families.iter().enumerate() {
            first_lock.push(locks.len());
            let count = match of {
                Family::Weighted(weights) => weights.len(),
                Family::Own => cores.len(),
            };
            locks.extend((0..count).map(|_| Lock { family, ..Lock::default() }));
        }
        let counters = crews.iter().flat_map(|crew| &crew.program).map(|step| match step {
            Step::Count { counter, .. } => counter + 1,
            _ => 0,
        });
        let mut engine = Self {
            machine,
            families,
            crews,
            first_lock,
            rng: SplitMix64::new(seed),
            now: 0,
            events: BinaryHeap::new(),
            planned: 0,
            counters: vec![Line::default(); counters.max().unwrap_or(0)],
            cores,
            locks,
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
        let share = match step {
            Step::Work { .. } | Step::Fetch { .. } => 1.0,
            Step::Hold { share, .. } | Step::Count { share, .. } | Step::Push { share, .. } => {
                share
            }
        };
        if share < 1.0 && self.chance() >= share {
            return self.plan(0.0, What::Next { core });
        }
        match step {
            Step::Work { ns } => {
                // In the interval (0, 1], so that the logarithm is finite.
                let time = -ns * (1.0 - self.chance()).ln();
                self.plan(time, What::Next { core });
            }
            Step::Fetch { ns } => {
                let writer = self.rng.below(self.cores.len() as u64) as u32;
                let time = self.around(ns * self.machine.distance(Some(writer), core));
                self.plan(time, What::Next { core });
            }
            Step::Hold { family, ns, moved_ns, .. } => {
                self.cores[core as usize].hold = (ns, moved_ns);
                let lock = self.pick(family, core);
                self.ask(lock, core);
            }
            Step::Count { counter, .. } => {
                let mut line = self.counters[counter];
                let time = self.fetch(&mut line, core);
                self.counters[counter] = line;
                self.plan(time, What::Next { core });
            }
            Step::Push { ns, .. } => {
                let other = self.other_core(core);
                let mut line = self.cores[other].inbox;
                let time = self.fetch(&mut line, core);
                self.cores[other].inbox = line;
                self.cores[other].inbox_ns += ns;
                self.plan(time, What::Next { core });
            }
        }
    }

    /// Returns the time after which `core` has changed `line`, behind those that came first.
    fn fetch(&mut self, line: &mut Line, core: u32) -> f64 {
        let time = self.machine.transfer_ns * self.machine.distance(line.owner, core);
        let begin = line.free_at.max(self.now);
        line.free_at = begin + picoseconds(time);
        line.owner = Some(core);
        (line.free_at - self.now) as f64 / 1e3
    }

    /// Returns the index of any core but `core`; of `core` if it is alone.
    fn other_core(&mut self, core: u32) -> usize {
        match self.cores.len() {
            1 => 0,
            count => {
                let other = self.rng.below(count as u64 - 1) as usize;
                other + usize::from(other >= core as usize)
            }
        }
    }

    /// Returns the index of a lock of `family` for `core`.
    fn pick(&mut self, family: usize, core: u32) -> usize {
        let first = self.first_lock[family];
        match &self.families[family] {
            Family::Own => first + core as usize,
            Family::Weighted(weights) if weights.len() == 1 => first,
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
        let sees_it = if lock.owner == Some(core) { 0.0 } else { word_ns };
        let first = |(seen, _)| !self.machine.fair && self.now + picoseconds(sees_it) < seen;
        if lock.holder.is_none() && lock.promised.is_none_or(first) {
            self.take(index, core, word_ns);
        } else {
            lock.waiters.push((core, self.now));
            self.contentions[lock.family] += 1;
        }
    }

    /// Returns the time until `core` can change the word of a lock: from the farthest core that
    /// has it, and behind all others that look at it.
    fn claim_ns(&self, index: usize, core: u32) -> f64 {
        let lock = &self.locks[index];
        let mut farthest = self.machine.distance(lock.owner, core);
        let mut crowd = 0.0;
        for &(other, since) in &lock.waiters {
            if other != core && self.spins(since) {
                let distance = self.machine.distance(Some(other), core);
                farthest = farthest.max(distance);
                crowd += self.machine.waiter_transfers * distance;
            }
        }
        self.machine.transfer_ns * (farthest + crowd)
    }

    /// Returns the factor by which cores that look at a lock's word slow its holder down: the
    /// holder writes beside the word, and every look takes the line away.
    fn disturbance(&self, index: usize, core: u32) -> f64 {
        if self.machine.waiter_transfers == 0.0 {
            return 1.0;
        }
        let waiters = self.locks[index].waiters.iter();
        let looks = waiters.filter(|&&(other, since)| other != core && self.spins(since));
        let distances = looks.map(|&(other, _)| self.machine.distance(Some(other), core));
        let fetch_ns = self.machine.transfer_ns * distances.fold(0.0, f64::max);
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
        lock.holder = Some(core);
        lock.owner = Some(core);
        lock.promised = None;
        let family = lock.family;
        self.acquisitions[family] += 1;
        let mut hold = self.around((ns + moved) * disturbed);
        if self.families[family] == Family::Own && self.cores[core as usize].inbox_ns > 0.0 {
            hold += self.drain(core);
        }
        self.plan(word_ns + hold, What::Release { lock: index });
    }

    /// Returns the time in which `core` works off what others have handed to it.
    fn drain(&mut self, core: u32) -> f64 {
        let mut line = self.cores[core as usize].inbox;
        let fetched = self.fetch(&mut line, core);
        self.cores[core as usize].inbox = line;
        fetched + std::mem::take(&mut self.cores[core as usize].inbox_ns)
    }

    /// Frees a lock, promises it to a waiting core, and lets the holder go on.
    fn release(&mut self, index: usize) {
        let lock = &mut self.locks[index];
        let core = lock.holder.take().expect("a lock is released by its holder");
        if !lock.waiters.is_empty() {
            let (winner, look_ns) = self.first_look(index);
            let time = look_ns + self.claim_ns(index, winner);
            let fetch_ns = self.machine.transfer_ns * self.machine.distance(Some(core), winner);
            let seen = self.now + picoseconds(look_ns + fetch_ns);
            let lock = &mut self.locks[index];
            lock.promises += 1;
            lock.promised = Some((seen, lock.promises));
            let promise = lock.promises;
            self.plan(time, What::Grant { lock: index, winner, promise });
        }
        self.plan(0.0, What::Next { core });
    }

    /// Returns which waiting core looks first at a free lock, and when.
    fn first_look(&mut self, index: usize) -> (u32, f64) {
        let lock = &self.locks[index];
        if self.machine.fair {
            let winner = lock.waiters[0].0;
            return (winner, self.machine.look_ns * self.chance());
        }
        let all = || lock.waiters.iter();
        let spinning: Vec<u32> =
            all().filter(|&&(_, since)| self.spins(since)).map(|&(core, _)| core).collect();
        let (looking, interval) = if spinning.is_empty() {
            (all().map(|&(core, _)| core).collect(), self.machine.yield_ns)
        } else {
            // Every look fetches the word.
            (spinning, self.machine.look_ns + self.machine.transfer_ns)
        };
        let winner = looking[self.rng.below(looking.len() as u64) as usize];
        (winner, interval * self.chance() / looking.len() as f64)
    }

    /// Gives a lock to the core that it was promised to, if no other came first.
    fn grant(&mut self, index: usize, winner: u32, promise: u64) {
        let lock = &mut self.locks[index];
        if lock.promised.is_some_and(|(_, number)| number == promise) {
            lock.waiters.retain(|&(core, _)| core != winner);
            self.take(index, winner, 0.0);
        }
    }
}
