//! Steps that are done wrongly in the broken twins that the simulation must find.
//!
//! A twin is its test's thread: [`broken`] is true there for the one step that [`with`] was given,
//! and nowhere else. Outside of tests it is a constant, and nothing is left of what depends on it.

use std::cell::Cell;

/// A step that is done wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "steps that only tests know are among them")]
pub(crate) enum Twin {
    /// The cleaner deletes what it has copied before the copy is acknowledged (cleaner/C2).
    DeletesEarly,
    /// The log learns the place of the cleaner's copy before the copy is acknowledged (far/H1).
    MapsEarly,
    /// The cleaner's copy counts also for units that have changed meanwhile (log/L6).
    MovesBlindly,
    /// A number whose put failed is used again (seal/A2, far/H1).
    ReusesNumbers,
    /// Bytes are accepted without checking their tag (seal/A3).
    OpensAnything,
    /// A reader whose object is gone does not look where the unit lies now (far/H2).
    NeverLooksAgain,
}

thread_local! {
    static BROKEN: Cell<Option<Twin>> = const { Cell::new(None) };
    /// The number of the last put that failed.
    static SPARE: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Returns whether a step is to be done wrongly here.
#[inline]
pub(crate) fn broken(step: Twin) -> bool {
    cfg!(test) && BROKEN.get() == Some(step)
}

/// Returns the number of the next put: in a twin, that of the last one that failed.
#[inline]
pub(crate) fn number(new: u64) -> u64 {
    if broken(Twin::ReusesNumbers) { SPARE.take().unwrap_or(new) } else { new }
}

/// Keeps the number of a put that failed for a twin's next one.
#[inline]
pub(crate) fn put_failed(number: u64) {
    if broken(Twin::ReusesNumbers) {
        SPARE.set(Some(number));
    }
}

/// Does `run` on this thread with a step that is broken.
#[cfg(test)]
pub(crate) fn with<T>(twin: Twin, run: impl FnOnce() -> T) -> T {
    BROKEN.set(Some(twin));
    SPARE.set(None);
    let done = run();
    BROKEN.set(None);
    done
}
