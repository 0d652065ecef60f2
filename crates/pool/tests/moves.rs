//! Objects move while others read them: a reader sees all bytes of an object, also in the middle of
//! a move. Counts moves, not seconds, so that a busy machine finds as much.

use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use zfold_pool::{Allocator, Handle, Locking, PageCount, Pool, PoolOptions, create};

/// Long, so that a move takes a while.
const LEN: usize = 3000;
const OBJECTS: usize = 120;
/// One of so many is kept when the others go: few, so that readers meet those that move.
const KEPT_OF: usize = 6;
const READERS: u8 = 3;
const MOVES_MIN: u64 = 12_000;
const ROUNDS_MAX: usize = 20_000;

/// Objects that are not freed as long as this is locked, and what they hold.
type Kept<'a> = RwLock<Vec<(Handle, &'a [u8])>>;

/// Returns different contents, more of them than objects, so that a place gets others each time.
fn contents() -> Vec<Vec<u8>> {
    let of = |n: usize| (0..LEN).map(|at| (at * 7 + n * 31) as u8).collect();
    (0..OBJECTS + 7).map(of).collect()
}

/// Reads what is kept over and over; returns how often.
fn read(pool: &dyn Pool, kept: &Kept<'_>, stop: &AtomicBool) -> u64 {
    let mut reads = 0;
    while !stop.load(Ordering::Relaxed) {
        for (handle, expected) in &*kept.read().expect("no panic") {
            let guard = pool.read(*handle).expect("kept");
            assert!(*guard == **expected, "{handle:?} was read in the middle of its move");
            reads += 1;
        }
    }
    reads
}

/// Fills the pool, frees most, and has what is kept moved together, until enough has moved.
fn churn<'a>(
    pool: &dyn Pool,
    contents: &'a [Vec<u8>],
    kept: &Kept<'a>,
    has_failed: impl Fn() -> bool,
) -> usize {
    for round in 0..ROUNDS_MAX {
        if pool.stats().objects_moved_total >= MOVES_MIN || has_failed() {
            return round;
        }
        let (mut stay, mut go) = (Vec::new(), Vec::new());
        for n in 0..OBJECTS {
            let bytes = &contents[(n + round) % contents.len()][..];
            let handle = pool.insert(bytes).expect("room");
            let list = if n % KEPT_OF == round % KEPT_OF { &mut stay } else { &mut go };
            list.push((handle, bytes));
        }
        let old = std::mem::replace(&mut *kept.write().expect("no panic"), stay);
        for (handle, _) in old.into_iter().chain(go) {
            pool.free(handle).expect("ours");
        }
        pool.compact(u64::MAX);
    }
    ROUNDS_MAX
}

fn readers_meet_moves(options: &PoolOptions) {
    let (pool, contents) = (create("moves", options).expect("a pool"), contents());
    let (kept, stop, reads) = (Kept::default(), AtomicBool::new(false), AtomicU64::new(0));
    let rounds = std::thread::scope(|scope| {
        let (pool, contents) = (&*pool, &contents[..]);
        let (kept, stop, reads) = (&kept, &stop, &reads);
        let work = move || reads.fetch_add(read(pool, kept, stop), Ordering::Relaxed);
        let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(work)).collect();
        let rounds =
            churn(pool, contents, kept, || readers.iter().any(|reader| reader.is_finished()));
        stop.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().expect("what was read is whole");
        }
        rounds
    });
    pool.check();
    let (moved, reads) = (pool.stats().objects_moved_total, reads.into_inner());
    println!("{} {:?}: {moved} moves, {reads} reads", options.allocator, options.locking());
    assert!(moved >= MOVES_MIN && reads > 0, "{moved} moves, {reads} reads in {rounds} rounds");
    for (handle, _) in kept.into_inner().expect("no panic") {
        pool.free(handle).expect("kept");
    }
    pool.compact(u64::MAX);
    pool.check();
    assert_eq!((pool.stats().objects, pool.stats().pages), (0, PageCount::ZERO));
}

#[test]
fn readers_of_zsmalloc_meet_moves() {
    for &locking in Locking::of(Allocator::Zsmalloc) {
        let mut options = PoolOptions::new(Allocator::Zsmalloc);
        options.locking = Some(locking);
        readers_meet_moves(&options);
    }
}

#[test]
fn readers_of_fit_meet_moves() {
    for &locking in Locking::of(Allocator::Fit) {
        readers_meet_moves(&PoolOptions::new(Allocator::Fit).with_locking(locking));
    }
}
