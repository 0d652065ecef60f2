//! Shards, their handles, workers, threads and panics.

use super::*;
use std::cell::Cell;
use std::sync::Barrier;
use std::sync::atomic::Ordering;

use crate::buddy::z3fold::Z3fold;
use crate::create::create;
use crate::memory::arena::Arena;
use crate::memory::source::PageSource;
use crate::options::{Allocator, KernelRules, Locking, PoolOptions};
use crate::testing::{CHECKS, HeapPages, HookedPages};
use crate::units::{PageCount, PageSize};
use zfold_testing::wait_until;

thread_local! {
    /// The CPU that this thread pretends to run on, and how far it moves with every look.
    static HOME: Cell<Option<(usize, usize)>> = const { Cell::new(None) };
}

pub(super) fn pretended_cpu() -> Option<usize> {
    let (cpu, step) = HOME.get()?;
    HOME.set(Some((cpu + step, step)));
    Some(cpu)
}

/// Pages of a shard under test.
const PAGES: usize = if cfg!(miri) { 256 } else { 16 << 10 };

fn sharded(shards: usize, pages: usize, upkeep: Upkeep) -> Sharded<Z3fold> {
    let used = Arc::new(UsedPages::default());
    let core = |_| {
        let range = HeapPages.reserve(pages * 4096).unwrap();
        let arena = Arena::new(range, PageSize::KIB4).counted_in(Arc::clone(&used));
        let records = HeapPages.reserve(Z3fold::records_range_bytes(pages)).unwrap();
        Z3fold::new(arena, records, false)
    };
    let cores = (0..shards).map(core).collect();
    Sharded::new("sharded", cores, used, Contexts::Single, upkeep)
}

fn insert_on(pool: &Sharded<Z3fold>, cpu: usize, bytes: &[u8]) -> Handle {
    HOME.set(Some((cpu, 0)));
    let handle = pool.insert(bytes);
    HOME.set(None);
    handle.expect("memory for one object")
}

fn objects(pool: &Sharded<Z3fold>) -> Vec<u64> {
    pool.shards.iter().map(|Shard(shard)| shard.stats().objects).collect()
}

#[test]
fn a_compaction_that_is_stopped_leaves_the_shards_alone() {
    let pool = sharded(2, 64, Upkeep::Inline);
    let handles = [0, 1].map(|cpu| insert_on(&pool, cpu, &[1; 3000]));
    handles.into_iter().for_each(|handle| pool.free(handle).unwrap());
    assert_eq!(pool.stats().idle_pages, PageCount(2));
    pool.compact_until(u64::MAX, &AtomicBool::new(true));
    assert_eq!(pool.stats().idle_pages, PageCount(2));
    pool.compact(u64::MAX);
    assert_eq!(pool.stats().idle_pages, PageCount(0));
}

#[test]
fn every_shard_conforms() {
    for upkeep in [Upkeep::Inline, Upkeep::Workers] {
        HOME.set(Some((0, 1)));
        for (sentence, check) in CHECKS {
            println!("{upkeep:?}: {sentence}");
            check(&|| Box::new(sharded(5, PAGES, upkeep)));
        }
        HOME.set(None);
    }
}

#[test]
fn an_object_lies_in_the_shard_of_the_cpu_that_allocated_it() {
    let pool = sharded(3, PAGES, Upkeep::Inline);
    let handles = [0, 1, 2, 3, 1].map(|cpu| insert_on(&pool, cpu, &[cpu as u8; 700]));
    assert_eq!(objects(&pool), [2, 2, 1]);
    let stats = pool.stats();
    assert_eq!((stats.objects, stats.payload_bytes), (5, 3500));
    assert_eq!((stats.pages, stats.pages_peak), (PageCount(3), PageCount(3)));
    pool.free(handles[2]).unwrap();
    assert_eq!(objects(&pool), [2, 2, 0]);
    assert_eq!(&*pool.read(handles[3]).unwrap(), &[3; 700]);
    pool.check();
}

#[test]
fn the_peak_is_that_of_the_pool_and_not_the_sum_of_the_shards() {
    let pool = sharded(2, PAGES, Upkeep::Inline);
    for cpu in [0, 1] {
        let handle = insert_on(&pool, cpu, &[1; 4096]);
        pool.free(handle).unwrap();
    }
    assert_eq!(pool.stats().pages_peak, PageCount(1));
}

#[test]
fn a_handle_of_one_shard_is_stale_in_all_others() {
    let pool = sharded(5, PAGES, Upkeep::Inline);
    let handles: Vec<_> = (0..100).map(|n| insert_on(&pool, n % 5, b"mine")).collect();
    for (n, &handle) in handles.iter().enumerate() {
        assert_eq!(handle.index() & 7, n as u32 % 5);
        // Shards 5 to 7 do not exist.
        for other in (0..8).filter(|other| *other != n as u32 % 5) {
            let wrong = handle.with_index(handle.index() & !7 | other).unwrap();
            assert_eq!(pool.read(wrong).err(), Some(HandleError::Stale));
            assert_eq!(pool.free(wrong), Err(HandleError::Stale));
        }
    }
    // A handle without a serial, which is none once the shard is taken out of it.
    for bits in 1..32 {
        let made_up = Handle::from_bits(std::num::NonZeroU64::new(bits).unwrap());
        assert_eq!(pool.free(made_up), Err(HandleError::Stale));
    }
    handles.into_iter().for_each(|handle| pool.free(handle).unwrap());
}

/// Pages of three objects, of which the first two are freed: all wait, fewer than wake the
/// worker.
fn let_pages_wait(pool: &Sharded<Z3fold>, cpu: usize) -> Vec<Handle> {
    let handles: Vec<_> = (0..30).map(|_| insert_on(pool, cpu, &[1; 1200])).collect();
    let (go, stay) = handles.into_iter().enumerate().partition::<Vec<_>, _>(|(n, _)| n % 3 < 2);
    go.into_iter().for_each(|(_, handle)| pool.free(handle).unwrap());
    stay.into_iter().map(|(_, handle)| handle).collect()
}

#[test]
fn room_that_waits_for_its_optimisation_is_used_before_memory_runs_out() {
    let pool = sharded(1, 10, Upkeep::Workers);
    let stay = let_pages_wait(&pool, 0);
    let more: Vec<_> = (0..20).map(|_| insert_on(&pool, 0, &[2; 1200])).collect();
    assert_eq!(pool.stats().pages, PageCount(10));
    assert!(stay.iter().all(|&handle| *pool.read(handle).unwrap() == [1; 1200]));
    assert!(more.iter().all(|&handle| *pool.read(handle).unwrap() == [2; 1200]));
}

#[test]
fn what_was_put_off_shows_in_no_counter_and_is_done_by_compaction() {
    let pool = sharded(2, PAGES, Upkeep::Workers);
    let stay = [0, 1].map(|cpu| let_pages_wait(&pool, cpu)).concat();
    assert_eq!(pool.used.now(), PageCount(20), "nothing is optimised yet");
    pool.check();
    assert_eq!(pool.compact(3), 6, "the least batch of one shard");
    assert_eq!(pool.compact(u64::MAX), 6);
    assert_eq!(pool.compact(u64::MAX), 0);
    assert_eq!(pool.stats().pages, PageCount(8));
    assert_eq!(pool.stats().pages_compacted_total, 12);
    stay.into_iter().for_each(|handle| pool.free(handle).unwrap());
    let_pages_wait(&pool, 0);
    assert_eq!(pool.used.now(), PageCount(10));
    assert_eq!(pool.stats().pages, PageCount(4), "stats does what waits");
    pool.check();
}

#[test]
fn a_layout_worker_optimises_what_waits() {
    let pool = sharded(1, PAGES, Upkeep::Workers);
    let handles: Vec<_> = (0..300).map(|_| insert_on(&pool, 0, &[1; 1200])).collect();
    handles.iter().step_by(3).for_each(|&handle| pool.free(handle).unwrap());
    wait_until("the worker has done what waits", || {
        !pool.shards[0].0.lock().unwrap().core.optimise_due()
    });
    pool.check();
}

/// A pool with workers, which calls `hook` wherever it releases memory.
fn hooked(hook: impl Fn() + Send + Sync + 'static) -> Box<dyn Pool> {
    let options = PoolOptions {
        locking: Some(Locking::PerCpu),
        rules: KernelRules { upkeep: Upkeep::Workers, ..KernelRules::default() },
        cpus: Some(1),
        arena_bytes: 8 << 20,
        source: Arc::new(HookedPages(Arc::new(hook))),
        ..PoolOptions::new(Allocator::Z3fold)
    };
    create("hooked", &options).unwrap()
}

fn fill_and_empty(pool: &dyn Pool, pages: usize) {
    let handles: Vec<_> = (0..pages).map(|_| pool.insert(&[1; 4096]).unwrap()).collect();
    handles.into_iter().for_each(|handle| pool.free(handle).unwrap());
}

#[test]
fn a_release_worker_releases_what_is_due() {
    let (sender, names) = std::sync::mpsc::channel();
    let pool = hooked(move || {
        let name = std::thread::current().name().map(str::to_owned);
        sender.send(name).unwrap();
    });
    fill_and_empty(&*pool, 100);
    assert_eq!(names.recv().unwrap().as_deref(), Some("zfold-release"));
    drop(pool);
    assert!(names.iter().all(|name| name.as_deref() == Some("zfold-release")));
}

#[test]
fn a_caller_releases_what_a_worker_does_not_get_to() {
    let (at_work, go_on) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let hook = {
        let (at_work, go_on) = (Arc::clone(&at_work), Arc::clone(&go_on));
        let first = AtomicBool::new(true);
        move || {
            if first.swap(false, Ordering::Relaxed) {
                at_work.wait();
                go_on.wait();
            }
        }
    };
    let pool = hooked(hook);
    fill_and_empty(&*pool, 100);
    at_work.wait();
    fill_and_empty(&*pool, 1000);
    let idle = pool.stats().idle_pages;
    assert!((33..=256).contains(&idle.0), "{idle}: at most four times what is kept");
    go_on.wait();
}

#[test]
fn workers_end_with_their_pool_also_in_a_panic() {
    for panics in [false, true] {
        let pool = sharded(2, PAGES, Upkeep::Workers);
        assert_eq!(pool._workers.len(), 2);
        let shards = Arc::downgrade(&pool.shards);
        let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let pool = pool;
            // So many that the workers are at it.
            (0..8).for_each(|n| drop(let_pages_wait(&pool, n % 2)));
            assert!(!panics, "with the pool in use");
        }));
        assert_eq!(dropped.is_err(), panics);
        assert_eq!(shards.strong_count(), 0, "threads that hold the shards are left");
    }
}

#[test]
fn a_panic_kills_one_shard() {
    let pool = sharded(2, PAGES, Upkeep::Workers);
    let handles = [0, 1].map(|cpu| insert_on(&pool, cpu, b"object"));
    std::thread::scope(|scope| {
        let holder = scope.spawn(|| {
            let _held = pool.shards[0].0.lock();
            panic!("while holding");
        });
        assert!(holder.join().is_err());
    });
    assert_eq!(pool.free(handles[0]), Err(HandleError::Dead));
    HOME.set(Some((0, 0)));
    assert_eq!(pool.insert(b"x"), Err(AllocError::Dead));
    HOME.set(None);
    assert_eq!(&*pool.read(handles[1]).unwrap(), b"object");
    assert_eq!(pool.free(handles[1]), Ok(()));
    assert_eq!(pool.stats().objects, 1);
    pool.compact(u64::MAX);
}

#[test]
fn every_shard_has_lock_statistics() {
    let pool = sharded(3, PAGES, Upkeep::Inline);
    pool.watch_locks(true);
    for n in 0..7 {
        insert_on(&pool, n % 3, b"object");
    }
    let stats = pool.lock_stats();
    let name = |n| ("cpu", n);
    assert!(stats.iter().zip(0..).all(|(stat, n)| (stat.name, stat.index) == name(n)));
    let acquisitions: Vec<_> = stats.iter().map(|stat| stat.acquisitions).collect();
    assert_eq!(acquisitions, [3, 2, 2]);
}
