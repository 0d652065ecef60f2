//! Stores whose pages leave for a backing file when the limit is reached: the limit is kept, and
//! what cannot be written is refused.

mod backed;

use backed::{faulty, good, load, store_with};
use zfold_store::backing::{Fault, Faults};
use zfold_store::{ProcessError, Selection, StoreError};
use zfold_testing::wait::{at_once, beside};

/// Each thread that waits for room makes it, and what that takes counts, too.
#[test]
fn many_threads_find_room_under_a_small_limit() {
    const THREADS: u64 = 8;
    const PAGES: u64 = 400;
    let backing = faulty(64 << 20);
    let store = store_with(&backing, |options| {
        options.slots = THREADS * PAGES;
        options.limit_bytes = Some(1 << 20);
    });
    let store = &store;
    at_once(0..THREADS, |thread| {
        for round in 0..3 {
            for key in thread * PAGES..(thread + 1) * PAGES {
                let _ = store.store(key, &good(key + round)).unwrap();
                assert_eq!(load(store, key).unwrap(), good(key + round));
            }
        }
    });
    let stats = store.stats();
    assert!(stats.held_bytes() <= 1 << 20, "{stats:?}");
}

/// What a store takes while it makes room, and a page that is about to be refused, count, too.
#[test]
fn an_observer_never_sees_more_than_the_limit() {
    let backing = faulty(64 << 20);
    let limit = 4 << 20;
    let store = &store_with(&backing, |options| options.limit_bytes = Some(limit));
    let mut most = 0;
    let look = || most = most.max(store.stats().held_bytes());
    beside(look, || {
        for key in 0..20_000 {
            let _ = store.store(key, &good(key)).unwrap();
            let before = key / 2;
            assert!(load(store, before).unwrap() == good(before), "{before}");
        }
    });
    assert!(limit / 2 < most && most <= limit, "{most} bytes of {limit}");
    assert!(store.held_bytes() <= limit && store.stats().backed_pages > 10_000);
    store.check();
}

#[test]
fn at_the_limit_a_failing_file_refuses_stores_and_loses_nothing() {
    let backing = faulty(32 << 20);
    let store = store_with(&backing, |options| options.limit_bytes = Some(1 << 20));
    backing.set(Faults::default().with(Fault::NoSpace, 1000));
    let stored = (0..5000).take_while(|&key| store.overwrite(key, &good(key)).is_ok()).count();
    assert!((100..2000).contains(&stored), "{stored} pages");
    assert_eq!(store.overwrite(0, &good(7)), Err(StoreError::Full));
    for key in 0..stored as u64 {
        assert!(load(&store, key).unwrap() == good(key), "{key} is what it was");
    }
    assert!(store.stats().reject_reclaim_fail_total > 0);
    backing.heal();
    store.overwrite(0, &good(7)).unwrap();
    assert!(load(&store, 0).unwrap() == good(7));
    store.check();
}

#[test]
fn a_full_backing_file_is_told_and_stores_are_refused_at_the_limit() {
    let backing = faulty(256 << 10);
    let store = store_with(&backing, |options| options.limit_bytes = Some(1 << 20));
    let stored = (0..5000).take_while(|&key| store.store(key, &good(key)).is_ok()).count() as u64;
    assert!(stored < 3000);
    assert!(matches!(store.writeback(&Selection::All, None), Err(ProcessError::BackingFull)));
    for key in 0..stored {
        assert!(load(&store, key).unwrap() == good(key), "{key}");
    }
    store.check();
}
