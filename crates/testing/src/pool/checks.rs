//! The checks: each makes pools and tries one sentence of the contract.

use zfold_pool::{AllocError, HandleError, PageCount, Pool};

use super::forge::words;
use super::handles;
use super::model::{Model, Op};

/// A check of one sentence of the contract, for a maker of empty pools.
pub type Check = fn(&dyn Fn() -> Box<dyn Pool>);

/// All checks, with the sentence each one stands for.
pub const CHECKS: &[(&str, Check)] = &[
    ("an object keeps its bytes until it is freed", objects_keep_their_bytes),
    ("objects of every length come back exactly", every_length_comes_back),
    ("length 0 and more than the longest are refused", wrong_lengths_are_refused),
    ("handles of another pool are refused", handles::foreign_are_refused),
    ("stale and made-up handles are refused", handles::only_live_numbers_do_anything),
    ("an object that is read cannot be freed", readers_keep_objects),
    ("an emptied pool holds no page", an_emptied_pool_holds_no_page),
    ("counters agree with what was done", counters_agree),
    ("compaction frees pages and keeps objects", compaction_keeps_objects),
    ("threads do not disturb each other", threads_do_not_disturb_each_other),
];

fn objects_keep_their_bytes(make: &dyn Fn() -> Box<dyn Pool>) {
    for seed in 0..4 {
        let pool = make();
        let mut model = Model::new(&*pool);
        Op::random(seed, pool.len_max()).take(4000).for_each(|op| model.apply(&op));
        model.finish();
    }
}

fn every_length_comes_back(make: &dyn Fn() -> Box<dyn Pool>) {
    let pool = make();
    let step = if cfg!(miri) { 509 } else { pool.len_max() / 512 };
    let bytes: Vec<u8> = (0..pool.len_max()).map(|n| (n * 7 + n / 256) as u8).collect();
    for len in (1..pool.len_max()).step_by(step).chain([pool.len_max()]) {
        let handle = pool.insert(&bytes[..len]).expect("memory for one object");
        assert!(*pool.read(handle).expect("live") == bytes[..len], "{len} bytes");
        pool.free(handle).expect("live");
    }
    pool.check();
}

fn wrong_lengths_are_refused(make: &dyn Fn() -> Box<dyn Pool>) {
    let pool = make();
    let max = pool.len_max();
    assert_eq!(pool.insert(&[]), Err(AllocError::ZeroLength));
    let too_long = Err(AllocError::TooLong { len: max + 1, max });
    assert_eq!(pool.insert(&vec![1; max + 1]), too_long);
    assert_eq!(pool.stats().objects, 0);
    assert!(pool.insert(&vec![1; max]).is_ok());
}

fn readers_keep_objects(make: &dyn Fn() -> Box<dyn Pool>) {
    let pool = make();
    let (read, free) = (pool.insert(b"being read").unwrap(), pool.insert(b"not").unwrap());
    let (first, second) = (pool.read(read).unwrap(), pool.read(read).unwrap());
    assert_eq!(pool.free(read), Err(HandleError::Busy));
    assert_eq!(pool.free(free), Ok(()), "other objects are not affected");
    drop(first);
    assert_eq!(pool.free(read), Err(HandleError::Busy), "one reader is left");
    drop(second);
    assert_eq!(pool.free(read), Ok(()));
}

fn an_emptied_pool_holds_no_page(make: &dyn Fn() -> Box<dyn Pool>) {
    let pool = make();
    let idle = pool.held_bytes();
    let lens = || words(4).map(|word| word as usize % pool.len_max() + 1).take(2000);
    let held: Vec<_> = lens().map_while(|len| pool.insert(&vec![1; len]).ok()).collect();
    assert!(held.len() > 100);
    held.iter().for_each(|&handle| pool.free(handle).unwrap());
    assert_eq!(pool.stats().pages, PageCount::ZERO);
    pool.compact(u64::MAX);
    let stats = pool.stats();
    assert_eq!(stats.idle_pages, PageCount::ZERO, "compaction gives idle memory back");
    assert!(pool.held_bytes() <= idle + (64 << 10), "{} after {idle}", pool.held_bytes());
    pool.check();
}

fn counters_agree(make: &dyn Fn() -> Box<dyn Pool>) {
    let pool = make();
    let lens = [1, 100, 1000, 2000, 3000, pool.len_max()];
    let held = lens.map(|len| pool.insert(&vec![1; len]).unwrap());
    let stats = pool.stats();
    assert_eq!(stats.objects, lens.len() as u64);
    assert_eq!(stats.payload_bytes, lens.iter().sum::<usize>() as u64);
    assert!(stats.pool_bytes() >= stats.payload_bytes);
    assert!(stats.pages_peak >= stats.pages);
    assert_eq!(stats.held_bytes(), pool.held_bytes());
    held.into_iter().for_each(|handle| pool.free(handle).unwrap());
    assert_eq!((pool.stats().objects, pool.stats().payload_bytes), (0, 0));
    assert_eq!(pool.stats().pages_peak, stats.pages_peak);
}

fn compaction_keeps_objects(make: &dyn Fn() -> Box<dyn Pool>) {
    let pool = make();
    let mut model = Model::new(&*pool);
    let len = pool.len_max() / 3;
    (0..1200).for_each(|n| model.apply(&Op::Insert { len: len - n % 64 }));
    (0..800).for_each(|n| model.apply(&Op::Free { pick: n * 7919 }));
    let before = pool.stats();
    let freed = pool.compact(u64::MAX);
    let after = pool.stats();
    assert_eq!(before.pages.0, after.pages.0 + freed);
    assert!(before.freeable_pages == PageCount::ZERO || freed > 0);
    assert_eq!(after.freeable_pages, PageCount::ZERO);
    assert_eq!(pool.compact(u64::MAX), 0, "nothing is left to do");
    model.finish();
}

fn threads_do_not_disturb_each_other(make: &dyn Fn() -> Box<dyn Pool>) {
    let pool = make();
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let pool = &*pool;
            scope.spawn(move || {
                let mut model = Model::new(pool);
                Op::random(100 + seed, pool.len_max()).take(4000).for_each(|op| model.apply(&op));
                model.finish();
            });
        }
    });
    pool.check();
    assert_eq!(pool.stats().objects, 0);
}
