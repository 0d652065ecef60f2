//! Goes through all orders of what the processes of a model may do.

use std::collections::HashSet;
use std::hash::Hash;

/// Returns how many worlds can come after `start`, with that, or the first in which something is
/// wrong. `next` returns the worlds that may come after one.
pub(crate) fn explore<W: Copy + Eq + Hash>(
    start: W,
    next: impl Fn(W) -> Vec<W>,
    wrong: impl Fn(W) -> Option<&'static str>,
) -> Result<usize, (&'static str, W)> {
    let (mut seen, mut open) = (HashSet::new(), vec![start]);
    while let Some(world) = open.pop() {
        if !seen.insert(world) {
            continue;
        }
        if let Some(wrong) = wrong(world) {
            return Err((wrong, world));
        }
        open.extend(next(world));
    }
    Ok(seen.len())
}
