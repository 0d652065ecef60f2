//! Compresses the swap cache: by the evictor, and by helper threads when it falls behind.
//!
//! Each batch is taken by one thread. Until it is retired, faults and forks find its pages in it; a
//! page that was taken back meanwhile is no longer in its slot.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::cold::copies::copy_bytes;
use crate::cold::swap_cache::SwapCache;
use crate::reclaim::mover::batch_max;
use crate::shared::Shared;
use crate::spaces::bytes::part_pages;
use crate::spaces::managed::lock;

/// Most helper threads.
const HELPERS: usize = 3;
/// How often they check for work without a call.
const IDLE: Duration = Duration::from_secs(3600);
/// About the time that a batch takes.
const MOMENT: Duration = Duration::from_micros(100);

/// Starts the helper threads: one for each CPU except that of the evictor.
///
/// # Errors
/// The system starts no thread.
pub(crate) fn start(shared: &Arc<Shared>, threads: &mut Vec<JoinHandle<()>>) -> io::Result<()> {
    for number in 0..helpers() {
        let shared = Arc::clone(shared);
        let name = format!("compressor-{number}");
        let help = move || {
            while !shared.compressors.wait(IDLE) {
                while lock(&shared.cold.swap_cache).pages() > shared.cold.swap_cache_max()
                    && retire(&shared)
                {}
            }
        };
        threads.push(thread::Builder::new().name(name).spawn(help)?);
    }
    Ok(())
}

/// Returns how many threads help.
fn helpers() -> usize {
    thread::available_parallelism().map_or(0, |cpus| HELPERS.min(cpus.get() - 1))
}

/// Returns how many pages the swap cache may hold above its size, so that all threads have work.
pub(crate) fn ahead(shared: &Shared) -> usize {
    (2 * batch_max() * helpers()).min(shared.cold.swap_cache_max())
}

/// Compresses the oldest batch that no other thread compresses; returns whether there was one.
/// Where compressed pages take their room from the program, it comes back with each part of the
/// batch; elsewhere that would cost more than it gains.
pub(crate) fn retire(shared: &Shared) -> bool {
    // It would find no room.
    if lock(&shared.cold.starving).is_waiting() {
        return false;
    }
    let Some(batch) = lock(&shared.cold.swap_cache).take() else {
        return false;
    };
    let in_parts = shared.budget.is_together();
    let at_once = if in_parts { part_pages() } else { batch.len() };
    // Those before it were given back when it found no room.
    for start in (batch.given()..batch.len()).step_by(at_once) {
        let part = start..batch.len().min(start + at_once);
        // Nobody wants pages of a space that is gone.
        let Some(managed) = shared.books.find(batch.space) else { break };
        let turn = lock(&shared.cold.starving).turn();
        if let Err(why) = shared.cold.store_part(&batch, &part, &managed) {
            starve(shared, turn, why);
            lock(&shared.cold.swap_cache).give_up(batch);
            return false;
        }
        if in_parts {
            SwapCache::give_back(&shared.cold.swap_cache, &batch, &part);
            count(shared, part.len());
        }
    }
    let is_tight = shared.budget.is_tight();
    let (pages, rest) = lock(&shared.cold.swap_cache).retire(batch, is_tight);
    drop(rest);
    count(shared, pages);
    true
}

/// A page that must leave found no room: a process is ended, or the tree. It was tried in this turn
/// ([`Starving::turn`](crate::cold::starving::Starving::turn)).
fn starve(shared: &Shared, turn: u64, why: String) {
    if shared.whole {
        return shared.end(why);
    }
    lock(&shared.cold.starving).want(turn, why);
    shared.evictor.call();
}

/// So many pages of the swap cache are in the store, or elsewhere.
fn count(shared: &Shared, pages: usize) {
    let (stored, bytes) = (shared.cold.stock.keys().used() as u64, shared.cold.store.held_bytes());
    shared.budget.set_copy_bytes(copy_bytes(&shared.cold.store));
    // Before the pages no longer count, so that no fault takes the room of both.
    shared.budget.set_held(bytes);
    shared.budget.change(pages, 0);
    shared.counters.peak_stored_pages.raise(stored);
    shared.counters.peak_stored_bytes.raise(bytes);
}

/// Waits a moment for batches that other threads compress; returns whether there were any.
pub(crate) fn wait_for_others(shared: &Shared) -> bool {
    let waits = lock(&shared.cold.swap_cache).is_in_work();
    if waits {
        thread::sleep(MOMENT);
    }
    waits
}
