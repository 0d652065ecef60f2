//! Compresses what is in the swap cache: the evictor does, and threads that help it when
//! it falls behind.
//!
//! Each batch is taken by one thread. Until it retires its pages are found in it, by faults and by
//! forks, whoever compresses it: a page that was taken back meanwhile is not in its slot any more.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::spaces::copies::copy_bytes;
use crate::spaces::managed::lock;
use crate::spaces::mover::BATCH_MAX;
use crate::spaces::shared::Shared;

/// Helping threads, at most.
const HELPERS: usize = 3;
/// They look whether there is anything to do when nobody calls.
const IDLE: Duration = Duration::from_secs(3600);
/// What a batch takes, about.
const MOMENT: Duration = Duration::from_micros(100);

/// Starts the threads that help: one for each CPU but that of the evictor.
///
/// # Errors
/// The system starts no thread.
pub(crate) fn start(shared: &Arc<Shared>, threads: &mut Vec<JoinHandle<()>>) -> io::Result<()> {
    for number in 0..helpers() {
        let shared = Arc::clone(shared);
        let name = format!("compressor-{number}");
        let help = move || {
            while !shared.compressors.wait(IDLE) {
                while lock(&shared.swap_cache).pages() > shared.swap_cache_max() && retire(&shared)
                {
                }
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

/// Returns how many pages the buffer may have beyond its measure, so that all have something to do.
pub(crate) fn ahead(shared: &Shared) -> usize {
    (2 * BATCH_MAX * helpers()).min(shared.swap_cache_max())
}

/// Compresses the oldest batch that nobody else compresses; returns whether there was one.
pub(crate) fn retire(shared: &Shared) -> bool {
    let Some(batch) = lock(&shared.swap_cache).take() else {
        return false;
    };
    if let Some(managed) = shared.find(batch.space)
        && shared.store_batch(&batch, &managed).is_err()
    {
        lock(&shared.swap_cache).give_up();
        return false;
    }
    let pages = lock(&shared.swap_cache).retire(batch);
    shared.budget.change(pages, 0);
    let (stored, bytes) = (lock(&shared.keys).used() as u64, shared.store.held_bytes());
    shared.budget.set_copy_bytes(copy_bytes(&shared.store));
    shared.counters.peak_stored_pages.raise(stored);
    shared.counters.peak_stored_bytes.raise(bytes);
    true
}

/// Waits a moment for batches that others compress; returns whether there were any.
pub(crate) fn wait_for_others(shared: &Shared) -> bool {
    let waits = lock(&shared.swap_cache).is_in_work();
    if waits {
        thread::sleep(MOMENT);
    }
    waits
}
