//! Checks of handles that name no live object: freed, of another pool, or made up.

use std::collections::HashSet;
use std::num::NonZeroU64;

use zfold_pool::{Allocator, Handle, PageCount, Pool, PoolOptions, create};

use super::forge::{forged, refused, words};

fn of_number(number: u64) -> Option<Handle> {
    NonZeroU64::new(number).map(Handle::from_bits)
}

/// Of another pool of the same kind, and of one of each allocator.
pub(super) fn foreign_are_refused(make: &dyn Fn() -> Box<dyn Pool>) {
    let foreign = |allocator| create("foreign", &PoolOptions::new(allocator)).expect("a pool");
    let others = [make()].into_iter().chain(Allocator::ALL.map(foreign));
    for other in others {
        let pool = make();
        let objects = |pool: &dyn Pool| -> HashSet<Handle> {
            (0..500).map(|_| pool.insert(b"an object").expect("memory")).collect()
        };
        let (own, foreign) = (objects(&*pool), objects(&*other));
        foreign.difference(&own).for_each(|&handle| refused(&*pool, handle));
        own.difference(&foreign).for_each(|&handle| refused(&*other, handle));
        assert_eq!((pool.stats().objects, other.stats().objects), (500, 500));
        pool.check();
        other.check();
    }
}

/// All low numbers, and many near to live and to freed objects, some of which left a hole beside a
/// live one: all are refused, no counter moves, what is stored before and after keeps its bytes.
pub(super) fn only_live_numbers_do_anything(make: &dyn Fn() -> Box<dyn Pool>) {
    const LOW: u64 = if cfg!(miri) { 64 } else { 4096 };
    const NEAR: usize = if cfg!(miri) { 8 } else { 64 };
    let pool = make();
    let len = |n: u8| [1500, 700, pool.len_max(), 40][n as usize % 4] - n as usize % 16;
    let insert = |n: u8| (n, pool.insert(&vec![n; len(n)]).expect("memory for an object"));
    let intact = |objects: &[(u8, Handle)]| {
        for &(n, handle) in objects {
            let copy = Handle::from_bits(handle.to_bits());
            assert!(*pool.read(copy).expect("live") == vec![n; len(n)], "object {n}");
        }
    };
    // Freed in turn, so that places without an object lie beside live ones.
    let (live, freed): (Vec<_>, Vec<_>) = (0..120).map(insert).partition(|(n, _)| n % 3 == 0);
    freed.iter().for_each(|&(_, handle)| pool.free(handle).expect("live"));
    let counts = || {
        let stats = pool.stats();
        (stats.objects, stats.payload_bytes, stats.pages)
    };
    let before = counts();
    let known: HashSet<_> = live.iter().map(|&(_, handle)| handle).collect();
    let near = live.iter().chain(&freed).map(|(_, handle)| handle.to_bits().get());
    let near = near.flat_map(|near| words(near).take(NEAR).map(move |word| forged(near, word)));
    let numbers = (1..=LOW).chain(near).filter_map(of_number);
    numbers.filter(|handle| !known.contains(handle)).for_each(|handle| refused(&*pool, handle));
    assert_eq!(counts(), before);
    pool.check();
    intact(&live);
    let more: Vec<_> = (120..240).map(insert).collect();
    intact(&more);
    intact(&live);
    live.iter().chain(&more).for_each(|&(_, handle)| pool.free(handle).expect("live"));
    assert_eq!(counts(), (0, 0, PageCount::ZERO));
    pool.check();
}
