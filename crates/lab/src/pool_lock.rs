//! One lock for the whole pool: bursts of stores from many threads, and a replayed swap trace.
//!
//! After "zsmalloc: consolidate zs_pool's migrate_lock and size_class's locks" (2022), which gave
//! up the hierarchical design for one pool lock and measured what that costs: fs_mark on zram, 32
//! threads that write files of 100,000 bytes, and a kernel build. Here a file is a burst of 25
//! pages stored under consecutive keys and kept, and in the place of the build stands the order of
//! stores, loads and invalidates of a compiler that swaps. `hierarchical` is "without lock
//! consolidation", `pool-lock` "with".

use std::sync::atomic::{AtomicUsize, Ordering};

use zfold_compare::trace::{Event, Trace};
use zfold_pool::{Allocator, Locking, Pool, PoolOptions};
use zfold_store::{CodecKind, Store, StoreOptions};

use crate::experiment::content::{Content, Keeper, PAGE_BYTES, verify};
use crate::experiment::harness::{Published, Samples, alternate, cost_of, sized, together};
use crate::experiment::{Error, Progress, Settings};

/// Name of the experiment.
pub(crate) const NAME: &str = "pool-lock";

/// Threads that write files.
const WRITERS: u32 = 32;
/// Pages of a file of 100,000 bytes.
const FILE_PAGES: usize = 25;
/// Threads of the replay; each has its share of the slots.
const REPLAYERS: u32 = 2;

pub(crate) const PUBLISHED: [Published; 2] =
    [("hierarchical", WRITERS, "files/s", 16986.0), ("pool-lock", WRITERS, "files/s", 16839.0)];

/// Runs the experiment.
///
/// # Errors
/// [`Error`] when a pool or store cannot be made or refuses a call, or a byte comes back wrong.
pub(crate) fn run(
    settings: &Settings,
    progress: Progress<'_>,
    samples: &mut Samples,
) -> Result<(), Error> {
    let content = Content::all();
    let files = sized(settings, 160, 8);
    let replay = Replay::new(&Trace::builtin(), sized(settings, 16, 2));
    let designs = Locking::of(Allocator::Zsmalloc);
    alternate(settings, progress, designs, samples, |locking, _, samples| {
        let name = locking.name();
        let seconds = write_files(*locking, &content, files)?;
        let all_files = f64::from(WRITERS) * files as f64;
        samples.push(name, WRITERS, "files/s", "files/s", all_files / seconds);
        let ((), cost) = cost_of(|| replay.run(*locking, &content))?;
        samples.cost(name, REPLAYERS, cost);
        Ok(())
    })
}

fn pool(locking: Locking) -> Result<Box<dyn Pool>, Error> {
    let mut options = PoolOptions::new(Allocator::Zsmalloc);
    options.locking = Some(locking);
    Ok(zfold_pool::create(NAME, &options)?)
}

/// Writes `files` files from each thread; returns the seconds until the last was written.
fn write_files(locking: Locking, content: &Content, files: usize) -> Result<f64, Error> {
    let keys = WRITERS as usize * files * FILE_PAGES;
    let options = StoreOptions::new(keys as u64, CodecKind::Lz4.into());
    let store = Store::new(pool(locking)?, &options)?;
    let free_key = AtomicUsize::new(0);
    let write = |_, ()| {
        for _ in 0..files {
            // Relaxed: keys need only be distinct.
            let first = free_key.fetch_add(FILE_PAGES, Ordering::Relaxed);
            for key in first..first + FILE_PAGES {
                store.store(key as u64, content.page(key))?;
            }
        }
        Ok(())
    };
    let (_, time) = together(WRITERS, |_| Ok(()), write)?;
    check_files(&store, content, keys)?;
    Ok(time.as_secs_f64())
}

/// Loads the pages of all files and compares every byte.
fn check_files(store: &Store, content: &Content, keys: usize) -> Result<(), Error> {
    let mut page = [0; PAGE_BYTES];
    for key in 0..keys {
        if !store.load(key as u64, &mut page)? {
            return Err(Error::Other(format!("{NAME}: page {key} was stored, but is not found")));
        }
        verify(NAME, content.page(key), &page, || format!("page {key}"))?;
    }
    Ok(())
}

/// A trace dealt to threads by slot, so that each slot sees its events in order.
struct Replay {
    parts: Vec<Vec<Event>>,
    slots: usize,
    passes: usize,
}

impl Replay {
    fn new(trace: &Trace, passes: usize) -> Self {
        let mut parts = vec![Vec::new(); REPLAYERS as usize];
        for event in trace.events() {
            parts[event.slot() % REPLAYERS as usize].push(*event);
        }
        Self { parts, slots: trace.slots(), passes }
    }

    fn run(&self, locking: Locking, content: &Content) -> Result<(), Error> {
        let pool = &*pool(locking)?;
        let prepare = |_| Ok(Keeper::new(NAME, pool, self.slots));
        let replay = |worker: u32, mut keeper| {
            for pass in 0..self.passes {
                for (position, event) in self.parts[worker as usize].iter().enumerate() {
                    apply(&mut keeper, content, event, position + pass)?;
                }
            }
            keeper.check_all()
        };
        together(REPLAYERS, prepare, replay)?;
        Ok(())
    }
}

/// Does what an event says; `number` chooses the contents of a store.
fn apply<'a>(
    keeper: &mut Keeper<'a>,
    content: &'a Content,
    event: &Event,
    number: usize,
) -> Result<(), Error> {
    match *event {
        Event::Store { slot, size } => {
            keeper.take(slot as usize)?;
            if size > 0 {
                keeper.put(slot as usize, content.object_of_len(size.into(), number))?;
            }
            Ok(())
        }
        Event::Load { slot } => keeper.check(slot as usize),
        Event::Invalidate { slot } | Event::Rejected { slot } => keeper.take(slot as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::harness::testing::{outcome, value};

    #[test]
    fn every_design_has_its_figures() {
        let outcome = outcome(NAME);
        for locking in Locking::ALL {
            assert!(value(&outcome, locking.name(), "files/s") > 0.0);
            assert!(value(&outcome, locking.name(), "real") > 0.0);
        }
        assert_eq!(outcome.figures.len(), 16);
    }

    #[test]
    fn a_page_that_is_wrong_or_lost_is_noticed() {
        let content = Content::all();
        let options = StoreOptions::new(2, CodecKind::Lz4.into());
        let store = Store::new(pool(Locking::PoolLock).unwrap(), &options).unwrap();
        store.store(0, content.page(0)).unwrap();
        check_files(&store, &content, 1).unwrap();
        assert!(matches!(check_files(&store, &content, 2), Err(Error::Other(_))));
        store.store(1, content.page(0)).unwrap();
        let error = check_files(&store, &content, 2).unwrap_err();
        assert_eq!(error.to_string(), "pool-lock: wrong bytes came back: page 1");
    }

    #[test]
    fn a_slot_sees_its_events_in_order() {
        let trace = Trace::builtin();
        let replay = Replay::new(&trace, 1);
        assert_eq!(replay.parts.iter().map(Vec::len).sum::<usize>(), trace.events().len());
        let content = Content::all();
        let pool = &*pool(Locking::PoolLock).unwrap();
        let mut keeper = Keeper::new(NAME, pool, 3);
        for (event, objects) in [
            (Event::Store { slot: 1, size: 300 }, 1),
            (Event::Store { slot: 1, size: 200 }, 1),
            (Event::Load { slot: 2 }, 1),
            (Event::Store { slot: 2, size: 0 }, 1),
            (Event::Rejected { slot: 1 }, 0),
        ] {
            apply(&mut keeper, &content, &event, 7).unwrap();
            assert_eq!(pool.stats().objects, objects, "{event:?}");
        }
    }
}
