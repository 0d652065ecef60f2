//! Lock designs of zsmalloc and of fit, with one thread and with two, on the sizes that real pages
//! compress to: the rate of replacing (alloc, write, free) and of reading objects, and how much two
//! threads do in the time of one.
//!
//! Designs take turns in short rounds, one thread and two threads right after each other; what is
//! printed is the median. Every thread works on objects of its own. `two pools` is two threads with
//! a pool-lock pool each, and `arithmetic` two that share nothing: what the machine itself allows
//! (two CPUs of a virtual machine may be the halves of one core).

mod common;

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{PAGE, median, objects, pin_to};
use zfold_pool::{Allocator, Handle, Locking, Pool, PoolOptions};
use zfold_testing::Random;

/// Rounds of each design.
const ROUNDS: usize = 15;
/// Operations of a thread in a round.
const BATCH: usize = 200_000;
/// Objects that a thread keeps alive: so many that a core's own cache holds them (where the locks
/// decide), and so many that memory does.
const LIVE: [usize; 2] = [500, 10_000];

/// The objects of one thread.
struct Worker<'a> {
    pool: &'a dyn Pool,
    objects: &'a [Vec<u8>],
    live: Vec<(Handle, usize)>,
    random: Random,
}

impl<'a> Worker<'a> {
    fn new(pool: &'a dyn Pool, objects: &'a [Vec<u8>], live: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let live = (0..live).map(|_| make(pool, &objects[random.index(objects.len())])).collect();
        Self { pool, objects, live, random }
    }

    fn replace(&mut self) {
        let at = self.random.index(self.live.len());
        let bytes = &self.objects[self.random.index(self.objects.len())];
        self.pool.free(self.live[at].0).expect("live");
        self.live[at] = make(self.pool, bytes);
    }

    fn read(&mut self, out: &mut [u8; PAGE]) {
        let (handle, len) = self.live[self.random.index(self.live.len())];
        out[..len].copy_from_slice(&self.pool.read(handle).expect("live"));
    }
}

/// One operation of a worker; the buffer is where it reads to.
type Operation = fn(&mut Worker<'_>, &mut [u8; PAGE]);

fn make(pool: &dyn Pool, bytes: &[u8]) -> (Handle, usize) {
    let handle = pool.alloc(bytes.len()).expect("memory");
    pool.write(handle, bytes).expect("new");
    (handle, bytes.len())
}

/// Lets workers do a batch each at the same time; returns the time from the first start to the
/// last end.
fn round(workers: &mut [Worker<'_>], operation: Operation) -> Duration {
    // Spinning: a thread that sleeps would start late.
    let (here, all) = (AtomicUsize::new(0), workers.len());
    let times: Vec<(Instant, Instant)> = std::thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter_mut()
            .enumerate()
            .map(|(cpu, worker)| {
                let (here, operation) = (&here, &operation);
                scope.spawn(move || {
                    pin_to(cpu);
                    let mut out = [0; PAGE];
                    here.fetch_add(1, Ordering::SeqCst);
                    while here.load(Ordering::SeqCst) < all {
                        std::hint::spin_loop();
                    }
                    let start = Instant::now();
                    (0..BATCH).for_each(|_| operation(worker, black_box(&mut out)));
                    (start, Instant::now())
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let start = times.iter().map(|time| time.0).min().expect("a worker");
    times.iter().map(|time| time.1).max().expect("a worker") - start
}

/// Prints what two threads that share nothing at all do in the time of one.
fn ceiling() {
    let work = |cpu: usize| {
        pin_to(cpu);
        let start = Instant::now();
        let sum = (0..20_000_000_u64).fold(cpu as u64, |sum, n| black_box(sum ^ n.rotate_left(7)));
        black_box(sum);
        start.elapsed().as_secs_f64()
    };
    let ratio = || {
        let one = std::thread::scope(|scope| scope.spawn(|| work(0)).join().expect("no panic"));
        let two = std::thread::scope(|scope| {
            let threads = [0, 1].map(|cpu| scope.spawn(move || work(cpu)));
            threads.map(|thread| thread.join().expect("no panic"))
        });
        2.0 * one / two[0].max(two[1])
    };
    println!("arithmetic: two threads do x {:.2}", median((0..ROUNDS).map(|_| ratio()).collect()));
}

fn main() {
    ceiling();
    let objects = objects();
    LIVE.into_iter().for_each(|live| race(&objects[..live.min(objects.len())], live));
}

fn race(objects: &[Vec<u8>], live: usize) {
    let make = |options: PoolOptions| zfold_pool::create("locks", &options).expect("a pool");
    let pool = |locking| make(PoolOptions::new(Allocator::Zsmalloc).with_locking(Some(locking)));
    let mut contestants: Vec<(String, Vec<Box<dyn Pool>>)> = Vec::new();
    for &locking in Locking::of(Allocator::Zsmalloc) {
        contestants.push((locking.to_string(), vec![pool(locking)]));
    }
    for &locking in Locking::of(Allocator::Fit) {
        let options = PoolOptions::new(Allocator::Fit).with_locking(locking);
        contestants.push((format!("fit {locking}"), vec![make(options)]));
    }
    contestants.push(("two pools".into(), vec![pool(Locking::PoolLock), pool(Locking::PoolLock)]));
    let mut workers: Vec<Vec<Worker<'_>>> = contestants
        .iter()
        .map(|(_, pools)| {
            let pool = |n: usize| &**pools.get(n).unwrap_or(&pools[0]);
            (0..2).map(|n| Worker::new(pool(n), objects, live, n as u64)).collect()
        })
        .collect();
    let operations: [(&str, Operation); 2] = [
        ("alloc+write+free", |worker, _| worker.replace()),
        ("read", |worker, out| worker.read(out)),
    ];
    for (name, operation) in operations {
        let mut times = vec![(Vec::new(), Vec::new()); workers.len()];
        for _ in 0..ROUNDS {
            for (workers, times) in workers.iter_mut().zip(&mut times) {
                let one = round(&mut workers[..1], operation);
                let two = round(workers, operation);
                times.0.push(one.as_secs_f64() * 1e9 / BATCH as f64);
                times.1.push(2.0 * one.as_secs_f64() / two.as_secs_f64());
            }
        }
        println!("{name}, {live} objects a thread");
        for ((design, _), (one, ratio)) in contestants.iter().zip(times) {
            println!(
                "  {design:14} {:6.0} ns with one thread   two threads do x {:.2}",
                median(one),
                median(ratio)
            );
        }
    }
}
