//! A store over a far backing: pages leave the machine, come back, and are cleaned when they die.

use std::sync::Arc;
use std::time::Duration;

use zfold_far::testing::{SimEngine, SimFaults};
use zfold_far::{FarBacking, FarOptions};
use zfold_store::{
    BackingOptions, CodecKind, LoadError, ProcessError, Selection, Store, StoreOptions,
};
use zfold_testing::random::noisy;
use zfold_testing::wait_until;

const PAGES: u64 = 2000;

fn far(engine: &Arc<SimEngine>) -> Arc<FarBacking> {
    let options = FarOptions::new(64 << 20)
        .with_backoff(Duration::ZERO)
        .with_tend(Duration::from_millis(1))
        .with_probe(Duration::from_millis(1))
        .with_probe_max(Duration::from_millis(1));
    Arc::new(FarBacking::open(Arc::clone(engine) as _, options).unwrap())
}

fn store(far: &Arc<FarBacking>, limit_bytes: Option<u64>) -> Store {
    let options = StoreOptions::new(PAGES, CodecKind::Lz4.into())
        .with_backing(BackingOptions::new(Arc::clone(far) as _))
        .with_limit_bytes(limit_bytes);
    Store::open(&options).unwrap()
}

/// A page that compresses to about a third.
fn page(key: u64, version: u64) -> Vec<u8> {
    noisy(key << 8 | version, 1300, 4096)
}

fn keys(keys: std::ops::Range<u64>) -> Selection {
    Selection::Keys(std::iter::once(keys).collect())
}

fn load(store: &Store, key: u64) -> Result<Vec<u8>, LoadError> {
    let mut out = vec![0; 4096];
    store.load(key, &mut out).map(|found| if found { out } else { Vec::new() })
}

#[test]
fn a_store_under_a_limit_keeps_its_pages_elsewhere() {
    let engine = Arc::new(SimEngine::new(3, SimFaults::default()));
    let far = far(&engine);
    let store = store(&far, Some(1 << 20));
    for version in 0..3 {
        (0..PAGES).for_each(|key| {
            let _ = store.store(key, &page(key, version)).unwrap();
        });
        (0..PAGES).for_each(|key| assert!(load(&store, key).unwrap() == page(key, version)));
    }
    let stats = far.stats();
    assert!(store.stats().backed_pages > PAGES / 2);
    // A sealed unit is a 32nd longer; what died is at most as much as what lives.
    let used = store.stats().backing_used_bytes;
    assert_eq!(stats.live_bytes, used / 512 * 528);
    assert!(store.stats().metadata_bytes > 4 * used / 512, "the map is memory that counts");
    wait_until("what died is cleaned", || {
        let stats = far.stats();
        stats.object_bytes <= 2 * stats.live_bytes + (64 << 10) && stats.dead_objects == 0
    });
    assert!(!engine.contains(&[7; 32]), "the rest of page 7 can be read");
    drop(store);
    assert_eq!(far.stats().live_bytes, 0);
    drop(far);
    assert_eq!(engine.objects(), 0);
}

#[test]
fn batches_are_as_long_as_the_engine_likes_objects() {
    for (object_bytes, limit, pages) in [
        (64 << 10, None, 62),
        (1 << 20, None, 992),
        (8 << 20, None, 992),
        (8 << 20, Some(16 << 20), 256),
        (8 << 20, Some(1 << 20), 16),
    ] {
        let engine = SimEngine::new(1, SimFaults::default()).with_object_bytes(object_bytes);
        let store = store(&far(&Arc::new(engine)), limit);
        assert_eq!(store.tunables().writeback_batch_pages, pages, "{object_bytes}, {limit:?}");
    }
}

#[test]
fn an_absent_engine_leaves_pages_in_memory_and_fails_those_that_are_there() {
    let engine = Arc::new(SimEngine::new(4, SimFaults::default()));
    let far = far(&engine);
    let store = store(&far, None);
    for key in 0..200 {
        let _ = store.store(key, &page(key, 0)).unwrap();
    }
    assert_eq!(store.writeback(&keys(0..100), None).unwrap().pages, 100);
    engine.set_absent(true);
    for _ in 0..3 {
        let written = store.writeback(&keys(100..200), None);
        assert!(matches!(written, Err(ProcessError::Backing(_))), "{written:?}");
    }
    for key in 0..100 {
        let error = load(&store, key).unwrap_err();
        assert!(matches!(error, LoadError::Backing { errno, .. } if errno != 0), "{error}");
    }
    (100..200).for_each(|key| assert!(load(&store, key).unwrap() == page(key, 0)));
    engine.set_absent(false);
    (0..200).for_each(|key| assert!(load(&store, key).unwrap() == page(key, 0)));
    wait_until("the engine is found", || {
        let written = store.writeback(&keys(100..200), None);
        written.is_ok_and(|written| written.pages > 0)
    });
    (0..200).for_each(|key| assert!(load(&store, key).unwrap() == page(key, 0)));
}
