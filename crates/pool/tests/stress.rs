//! Eight threads mix all operations on one pool while compaction runs; every thread knows what its
//! objects must hold, also those that another thread made and gave to it.
//!
//! `ZFOLD_STRESS_SECONDS` sets how long each lock design is driven (default 1).

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use zfold_pool::{
    AllocError, Allocator, Contexts, Handle, HandleError, Locking, PageCount, Pool, PoolOptions,
    Upkeep, create,
};
use zfold_testing::pool::Op;

const THREADS: usize = 8;
/// Operations that are too few for a run to have shown anything.
const DONE_MIN: u64 = 1000;
/// Objects of a thread before it only frees.
const LIVE_MAX: usize = 600;

/// An object and what it holds: bytes that follow from its length and a seed.
#[derive(Clone, Copy)]
struct Object {
    handle: Handle,
    len: usize,
    seed: u64,
}

fn byte(seed: u64, at: usize) -> u8 {
    (seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(at as u32 % 64) ^ at as u64) as u8
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| byte(seed, at)).collect()
}

impl Object {
    fn assert_intact(&self, read: &[u8]) {
        assert_eq!(read.len(), self.len, "{:?}", self.handle);
        let wrong = read.iter().enumerate().position(|(at, &got)| got != byte(self.seed, at));
        assert_eq!(wrong, None, "{:?} of {} bytes", self.handle, self.len);
    }
}

/// One thread's work; `post` is where objects are left for other threads.
fn mix(
    pool: &dyn Pool,
    thread: u64,
    post: &Mutex<Vec<Object>>,
    started: &AtomicU64,
    stop: &AtomicBool,
) -> u64 {
    let (mut live, mut stale): (Vec<Object>, Vec<Handle>) = (Vec::new(), Vec::new());
    let mut done = 0;
    for op in Op::random(thread, pool.len_max().min(3000)) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        done += 1;
        started.fetch_add(1, Ordering::Relaxed);
        match op {
            Op::Insert { len } if live.len() < LIVE_MAX => {
                let seed = thread << 40 | done;
                match pool.insert(&bytes(seed, len)) {
                    Ok(handle) => live.push(Object { handle, len, seed }),
                    Err(AllocError::ZeroLength | AllocError::TooLong { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            Op::UseStale { pick } if !stale.is_empty() => {
                let handle = stale[pick % stale.len()];
                assert_eq!(pool.read(handle).err(), Some(HandleError::Stale));
                assert_eq!(pool.free(handle), Err(HandleError::Stale));
            }
            Op::Compact { pages } => {
                pool.compact(pages);
            }
            Op::Reclaim { pages } if pages % 2 == 0 => {
                let stats = pool.stats();
                assert!(stats.pages_peak >= stats.pages);
            }
            // Another thread's object comes in, one of ours goes out.
            Op::Reclaim { .. } => {
                let mut post = post.lock().expect("no panic");
                live.extend(post.pop());
                post.extend(live.pop());
            }
            Op::Pin { pick } if !live.is_empty() => {
                let object = &live[pick % live.len()];
                let guard = pool.read(object.handle).expect("ours");
                assert_eq!(pool.free(object.handle), Err(HandleError::Busy));
                std::thread::yield_now();
                object.assert_intact(&guard);
            }
            Op::Read { pick } if !live.is_empty() => {
                let object = &live[pick % live.len()];
                object.assert_intact(&pool.read(object.handle).expect("ours"));
            }
            Op::Free { pick } | Op::Insert { len: pick } if !live.is_empty() => {
                let object = live.swap_remove(pick % live.len());
                object.assert_intact(&pool.read(object.handle).expect("ours"));
                pool.free(object.handle).expect("ours");
                stale.truncate(999);
                stale.insert(0, object.handle);
            }
            _ => {}
        }
    }
    for object in live {
        object.assert_intact(&pool.read(object.handle).expect("ours"));
        pool.free(object.handle).expect("ours");
    }
    done
}

fn stress(options: &PoolOptions) {
    let seconds = std::env::var("ZFOLD_STRESS_SECONDS").map_or(1, |s| s.parse().expect("seconds"));
    let pool = create("stress", options).expect("a pool");
    let (post, stop) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    let started = AtomicU64::new(0);
    let (mut done, mut freed) = (0, 0);
    std::thread::scope(|scope| {
        let (pool, post, started, stop) = (&*pool, &post, &started, &stop);
        let threads: Vec<_> = (0..THREADS as u64)
            .map(|n| scope.spawn(move || mix(pool, n, post, started, stop)))
            .collect();
        let compactor = scope.spawn(move || {
            let mut freed = 0;
            while !stop.load(Ordering::Relaxed) {
                freed += pool.compact_until(u64::MAX, stop);
            }
            freed
        });
        let end = Instant::now() + Duration::from_secs(seconds);
        // Longer where others keep the processors busy.
        let enough = || Instant::now() >= end && started.load(Ordering::Relaxed) > DONE_MIN;
        while !enough() && !threads.iter().any(|thread| thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(50));
            pool.check();
        }
        stop.store(true, Ordering::Relaxed);
        done = threads.into_iter().map(|thread| thread.join().expect("no panic")).sum();
        freed = compactor.join().expect("no panic");
    });
    for object in post.into_inner().expect("no panic") {
        object.assert_intact(&pool.read(object.handle).expect("posted"));
        pool.free(object.handle).expect("posted");
    }
    pool.check();
    let stats = pool.stats();
    println!(
        "{} {:?}: {done} operations, {freed} pages freed by compaction, {} objects moved",
        options.allocator,
        options.locking(),
        stats.objects_moved_total
    );
    assert_eq!((stats.objects, stats.payload_bytes, stats.pages), (0, 0, PageCount::ZERO));
    assert!(done > DONE_MIN, "{done} operations");
}

#[test]
fn zsmalloc_in_every_lock_design() {
    for &locking in Locking::of(Allocator::Zsmalloc) {
        for contexts in [Contexts::Parallel, Contexts::Concurrent] {
            let mut options = PoolOptions::new(Allocator::Zsmalloc).with_cpus(4);
            options.rules.contexts = contexts;
            stress(&options.with_locking(locking));
        }
    }
}

#[test]
fn z3fold_in_every_lock_design() {
    for (locking, upkeep) in [
        (Locking::PoolLock, Upkeep::Inline),
        (Locking::PerCpu, Upkeep::Inline),
        (Locking::PerCpu, Upkeep::Workers),
    ] {
        let mut options = PoolOptions::new(Allocator::Z3fold).with_locking(locking);
        options.rules.upkeep = upkeep;
        stress(&options);
    }
}

#[test]
fn fit_with_every_lock_design_and_one_compaction_or_many() {
    for &locking in Locking::of(Allocator::Fit) {
        for contexts in [Contexts::Single, Contexts::Concurrent] {
            let mut options = PoolOptions::new(Allocator::Fit).with_cpus(3);
            options.rules.contexts = contexts;
            stress(&options.with_locking(locking));
        }
    }
}

#[test]
fn zbud() {
    stress(&PoolOptions::new(Allocator::Zbud));
}
