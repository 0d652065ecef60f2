//! A simulator of lock designs: how many operations a second cores get done that share locks and
//! cache lines, on machines that are not at hand.
//!
//! Discrete events, no clock and no threads; one seed gives one result. A [`Machine`] has the cost
//! of fetching a line from another core. [`Crew`]s of cores go through the [`Step`]s of their
//! program in a closed loop: private work, sections under locks, additions to shared counters,
//! objects handed to other cores. Times are given in nanoseconds and kept in picoseconds.
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

mod engine;
mod machine;
mod program;
#[cfg(test)]
mod tests;

pub use engine::run;
pub use machine::Machine;
pub use program::{Crew, Family, Run, Step};
