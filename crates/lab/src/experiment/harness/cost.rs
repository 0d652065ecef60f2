//! The cost of a run.

use std::time::Instant;

use zfold_compare::proc::{self, Times};

use crate::experiment::error::Error;

/// The cost of a run, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cost {
    pub(crate) real: f64,
    /// Processor time of all threads in user mode, in steps of a clock tick.
    pub(crate) user: f64,
    /// The same in the kernel.
    pub(crate) sys: f64,
}

/// Measures what a run costs.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    of: fn() -> std::io::Result<Times>,
    started: Instant,
    before: Times,
}

impl Stopwatch {
    /// Starts to measure, with the processor time of this process, ended threads included.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub(crate) fn start() -> Result<Self, Error> {
        Self::of(proc::own_times)
    }

    /// The same with the processor time of descendants that have ended and been waited for.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub(crate) fn of_children() -> Result<Self, Error> {
        Self::of(proc::times_of_children)
    }

    fn of(of: fn() -> std::io::Result<Times>) -> Result<Self, Error> {
        Ok(Self { of, before: of()?, started: Instant::now() })
    }

    /// Returns the cost since the start.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub(crate) fn stop(&self) -> Result<Cost, Error> {
        let real = self.started.elapsed().as_secs_f64();
        let Times { user, sys } = (self.of)()?;
        Ok(Cost { real, user: user - self.before.user, sys: sys - self.before.sys })
    }
}

/// Runs `work` and returns its result and cost.
///
/// # Errors
/// That of `work`, or [`Error::Io`] if `/proc` cannot be read.
pub(crate) fn cost_of<R>(work: impl FnOnce() -> Result<R, Error>) -> Result<(R, Cost), Error> {
    let stopwatch = Stopwatch::start()?;
    let result = work()?;
    Ok((result, stopwatch.stop()?))
}
