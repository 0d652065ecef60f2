//! How an experiment is run: its variants in turn, threads that start together, the cost of a run.

mod cost;
mod samples;
#[cfg(test)]
pub(crate) mod testing;
mod threads;
mod turns;

pub(crate) use cost::{Cost, Stopwatch, cost_of};
pub(crate) use samples::{Published, Samples};
pub(crate) use threads::together;
pub(crate) use turns::{alternate, alternate_programs, sized};
