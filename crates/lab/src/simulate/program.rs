//! The programs of the simulated cores, and the results.

/// Locks of one kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Family {
    /// One of these, each with the chance that its weight gives it: the locks of size classes, or
    /// a single lock. At least one weight is above zero.
    Weighted(Vec<f64>),
    /// Every core's own.
    Own,
}

/// A step of a core; `share` is the chance that a round has this step, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Works without touching anything that others write.
    Work {
        /// Mean time.
        ns: f64,
    },
    /// Uses lines that any core may have written last.
    Fetch {
        /// Mean time if they come from another core of the same cluster.
        ns: f64,
    },
    /// Takes one lock of a family, holds it and gives it back.
    Hold {
        /// Chance of the step.
        share: f64,
        /// Index of the family.
        family: usize,
        /// Mean time if this core was the last holder.
        ns: f64,
        /// Added if the last holder was another core of the same cluster.
        moved_ns: f64,
    },
    /// Changes a counter that all cores share by one atomic operation, as readers of a
    /// reader-writer lock do on their way in and on their way out.
    Count {
        /// Chance of the step.
        share: f64,
        /// Index of the counter.
        counter: usize,
    },
    /// Hands something to another core, any of them, by one atomic operation; that core does it,
    /// with all work handed to it meanwhile, when it next takes a lock of its own.
    Push {
        /// Chance of the step.
        share: f64,
        /// Mean time to work it off.
        ns: f64,
    },
}

/// Cores that run the same program.
#[derive(Clone, Debug, PartialEq)]
pub struct Crew {
    /// Number of cores.
    pub cores: u32,
    /// Steps of a round, at least one that takes time.
    pub program: Vec<Step>,
}

/// The events until the first crew had done its rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Simulated time in nanoseconds.
    pub elapsed_ns: f64,
    /// Rounds that each core finished, crew after crew.
    pub rounds: Vec<u64>,
    /// Times that a lock of each family was taken.
    pub acquisitions: Vec<u64>,
    /// Of these, those that had to wait.
    pub contentions: Vec<u64>,
}

impl Run {
    /// Returns how many rounds the first `cores` cores did in a second.
    pub(crate) fn rounds_per_second(&self, cores: u32) -> f64 {
        let rounds: u64 = self.rounds[..cores as usize].iter().sum();
        rounds as f64 / self.elapsed_ns * 1e9
    }
}
