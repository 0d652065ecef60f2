//! What compaction costs those that store and load meanwhile: times of single calls of one thread
//! while another compacts all the time, beside those while the other one only counts.
//!
//! Rounds of both kinds take turns; what is printed is the median round's. Every third call frees a
//! page, so that there always are holes to be closed; every store or load may meet a page that is
//! moved. Each thread has a CPU of its own.

mod common;

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{PAGE, median, pages, pin_to};
use zfold_pool::{Allocator, PoolOptions};
use zfold_store::{CodecKind, CodecSpec, Store, StoreOptions};
use zfold_testing::Random;

const KEYS: usize = 40_000;
/// Rounds of each kind.
const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(1000);

/// What the other thread does.
#[derive(Clone, Copy, PartialEq)]
enum Beside {
    Counting,
    Compacting,
}

/// Nanoseconds of single calls.
#[derive(Default)]
struct Times {
    stores: Vec<u64>,
    loads: Vec<u64>,
}

/// Returns the 50th percentile and the 99.9th.
fn percentiles(mut times: Vec<u64>) -> [f64; 2] {
    times.sort_unstable();
    [0.5, 0.999].map(|share| times[(times.len() as f64 * share) as usize] as f64)
}

fn work(store: &Store, pages: &[[u8; PAGE]], random: &mut Random) -> Times {
    let (mut times, mut out) = (Times::default(), [0; PAGE]);
    let begun = Instant::now();
    while begun.elapsed() < ROUND {
        let (key, page) = (random.index(KEYS) as u64, &pages[random.index(pages.len())]);
        let start = Instant::now();
        store.store(key, page).expect("stored");
        times.stores.push(start.elapsed().as_nanos() as u64);
        let key = random.index(KEYS) as u64;
        let start = Instant::now();
        black_box(store.load(key, &mut out).expect("loaded"));
        times.loads.push(start.elapsed().as_nanos() as u64);
        store.invalidate(random.index(KEYS) as u64);
    }
    times
}

fn round(store: &Store, pages: &[[u8; PAGE]], random: &mut Random, beside: Beside) -> Times {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin_to(1);
            let mut count = 0_u64;
            while !ended.load(Ordering::Relaxed) {
                match beside {
                    Beside::Counting => count = black_box(count + 1),
                    Beside::Compacting => {
                        store.compact();
                    }
                }
            }
        });
        pin_to(0);
        let times = work(store, pages, random);
        ended.store(true, Ordering::Relaxed);
        times
    })
}

fn main() {
    let pages = pages();
    for allocator in [Allocator::Zsmalloc, Allocator::Fit] {
        let pool = zfold_pool::create("evacuation", &PoolOptions::new(allocator)).expect("a pool");
        let spec = CodecSpec::from(CodecKind::Lz4);
        let store = Store::new(pool, &StoreOptions::new(KEYS as u64, spec)).expect("a store");
        let mut random = Random::new(3);
        for key in 0..KEYS {
            store.store(key as u64, &pages[key % pages.len()]).expect("stored");
        }
        let mut seen = [const { Vec::new() }; 2];
        let moved = store.stats().pool.objects_moved_total;
        for _ in 0..ROUNDS {
            for (beside, seen) in [Beside::Counting, Beside::Compacting].into_iter().zip(&mut seen)
            {
                let Times { stores, loads } = round(&store, &pages, &mut random, beside);
                seen.push([percentiles(stores), percentiles(loads)]);
            }
        }
        let moved = store.stats().pool.objects_moved_total - moved;
        store.check();
        println!("{}: {} objects moved a second", allocator.name(), moved / ROUNDS as u64);
        for (call, name) in ["store", "load"].into_iter().enumerate() {
            for (share, percentile) in ["p50", "p99.9"].into_iter().enumerate() {
                let of =
                    |kind: usize| median(seen[kind].iter().map(|seen| seen[call][share]).collect());
                let ratio = seen[1].iter().zip(&seen[0]);
                let ratio = ratio.map(|(with, without)| with[call][share] / without[call][share]);
                let ratio = median(ratio.collect());
                println!(
                    "  {name:5} {percentile:5} {:8.0} ns alone  {:8.0} ns beside  x {ratio:.2}",
                    of(0),
                    of(1)
                );
            }
        }
    }
}
