//! What a store promises, sentence by sentence, over every allocator.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use zfold_pool::{AllocError, Allocator, PageCount, PageSize, PoolOptions, create};
use zfold_store::conformance::page;
use zfold_store::{
    CodecKind, Incompressible, KeyError, LoadError, OpenError, Store, StoreError, StoreOptions,
    Stored,
};
use zfold_testing::pool::{FailingPages, HeapPages};
use zfold_testing::wait::{at_once, beside};

fn store_over(pool: &PoolOptions, change: impl Fn(&mut StoreOptions)) -> Store {
    let mut options = StoreOptions::new(1 << 20, CodecKind::Lz4.into());
    change(&mut options);
    Store::new(create("store", pool).unwrap(), &options).unwrap()
}

fn store(allocator: Allocator, change: impl Fn(&mut StoreOptions)) -> Store {
    store_over(&PoolOptions::new(allocator), change)
}

fn load(store: &Store, key: u64) -> Option<Vec<u8>> {
    let mut buffer = vec![0; store.page_len()];
    store.load(key, &mut buffer).unwrap().then_some(buffer)
}

/// A page that compresses to about a third.
fn good(n: u32) -> Vec<u8> {
    page(n << 3 | 2, 4096)
}

/// A page that does not compress.
fn noise(n: u32) -> Vec<u8> {
    page(n << 3 | 7, 4096)
}

#[test]
fn every_form_of_page_comes_back_over_every_allocator_codec_and_page_size() {
    for allocator in Allocator::ALL {
        for codec in CodecKind::ALL {
            for page_size in [PageSize::KIB4, PageSize::KIB64] {
                let pool = PoolOptions::new(allocator).with_page_size(page_size);
                let store = store_over(&pool, |options| options.codec = codec.into());
                for fill in 0..16 {
                    let page = page(fill, page_size.bytes());
                    if store.store(fill.into(), &page).is_ok() {
                        assert!(load(&store, fill.into()) == Some(page), "{allocator} {codec:?}");
                    }
                }
                store.check();
            }
        }
    }
}

#[test]
fn forms_are_told_and_counted() {
    let store = store(Allocator::default(), |_| {});
    assert_eq!(store.store(0, &[7; 4096]), Ok(Stored::SameFilled));
    assert!(matches!(store.store(1, &good(1)), Ok(Stored::Compressed { len: 1000..2000 })));
    assert_eq!(store.store(2, &noise(1)), Ok(Stored::Raw));
    let stats = store.stats();
    assert_eq!(
        (stats.stored_pages, stats.same_filled_pages, stats.stored_incompressible_pages),
        (3, 1, 1)
    );
    assert_eq!(stats.pool.objects, 2);
    (0..3).for_each(|key| assert!(store.invalidate(key)));
    let stats = store.stats();
    assert_eq!(
        (stats.stored_pages, stats.same_filled_pages, stats.stored_incompressible_pages),
        (0, 0, 0)
    );
    assert_eq!((stats.stores_total, stats.invalidates_total), (3, 3));
}

/// A kernel bug to avoid: a counter of raw pages that underflows when such a page is replaced or
/// freed twice.
#[test]
fn replacing_raw_pages_keeps_their_count() {
    let store = store(Allocator::default(), |_| {});
    for n in 0..10 {
        store.store(1, &noise(n)).unwrap();
        store.store(1, &good(n)).unwrap();
    }
    store.store(1, &noise(11)).unwrap();
    assert_eq!(store.stats().stored_incompressible_pages, 1);
    assert!(store.invalidate(1) && !store.invalidate(1));
    assert_eq!(store.stats().stored_incompressible_pages, 0);
    store.check();
}

#[test]
fn a_page_that_costs_a_whole_pool_page_is_kept_raw() {
    // LZ4 brings this page to about 3700 bytes: a gain, but not for zsmalloc with chain 8.
    let store = store(Allocator::Zsmalloc, |_| {});
    let mut page = noise(1);
    page[3650..].fill(1);
    assert_eq!(store.store(0, &page), Ok(Stored::Raw));
    assert_eq!(load(&store, 0), Some(page));
}

#[test]
fn wrong_keys_and_lengths_change_nothing() {
    let store = store(Allocator::default(), |options| options.slots = 10);
    store.store(9, &good(1)).unwrap();
    let key = KeyError { key: 10, slots: 10 };
    assert_eq!(store.store(10, &good(1)), Err(StoreError::Key(key)));
    assert_eq!(store.load(10, &mut [0; 4096]), Err(LoadError::Key(key)));
    assert!(!store.invalidate(10) && !store.contains(u64::MAX));
    let wrong = StoreError::PageLength { len: 4095, expected: 4096 };
    assert_eq!(store.store(9, &good(1)[..4095]), Err(wrong));
    let wrong = LoadError::PageLength { len: 8, expected: 4096 };
    assert_eq!(store.load(9, &mut [0; 8]), Err(wrong));
    assert_eq!(load(&store, 9), Some(good(1)));
}

#[test]
fn options_out_of_range_are_refused() {
    let open = |change: fn(&mut StoreOptions)| {
        let mut options = StoreOptions::new(10, CodecKind::Lz4.into());
        change(&mut options);
        Store::new(create("x", &PoolOptions::new(Allocator::Zbud)).unwrap(), &options).unwrap_err()
    };
    assert!(matches!(open(|options| options.slots = 0), OpenError::Option(_)));
    assert!(matches!(open(|options| options.accept_percent = 101), OpenError::Option(_)));
    assert!(matches!(open(|options| options.slots = u64::MAX), OpenError::SlotTable(_)));
    let used = create("used", &PoolOptions::new(Allocator::Zbud)).unwrap();
    used.insert(b"somebody's").unwrap();
    let options = StoreOptions::new(10, CodecKind::Lz4.into());
    assert_eq!(Store::new(used, &options).unwrap_err(), OpenError::PoolInUse);
}

#[test]
fn a_refused_page_leaves_its_key_empty_and_is_intact() {
    for allocator in Allocator::ALL {
        let store = store(allocator, |options| options.incompressible = Incompressible::Reject);
        store.store(1, &good(1)).unwrap();
        let page = noise(1);
        assert_eq!(store.store(1, &page), Err(StoreError::Incompressible));
        assert_eq!(page, noise(1));
        assert_eq!(load(&store, 1), None, "the older page must not come back");
        assert_eq!(store.stats().reject_compress_poor_total, 1);
    }
}

#[test]
fn zbud_refuses_raw_pages_which_do_not_fit_its_pages() {
    let store = store(Allocator::Zbud, |_| {});
    assert_eq!(store.store(1, &noise(1)), Err(StoreError::Incompressible));
}

#[test]
fn a_page_is_stored_beyond_the_limit_where_that_is_asked_for() {
    let store = store(Allocator::default(), |options| options.limit_bytes = Some(1 << 20));
    let full = (0..6000).find(|&n| store.store(n.into(), &good(n)) == Err(StoreError::Full));
    let full = full.expect("it has a limit");
    let key = u64::from(full);
    assert!(load(&store, key).is_none() && store.payload_len(key) == 0);
    let stored = store.store_beyond(key, &good(full)).unwrap();
    let Stored::Compressed { len } = stored else { panic!("{stored:?}") };
    assert_eq!((load(&store, key), store.payload_len(key)), (Some(good(full)), len));
    assert_eq!(store.payload_len(u64::MAX), 0, "no such key");
    store.check();
}

#[test]
fn a_limit_holds_for_same_filled_pages_too() {
    let limit = 300 << 10;
    let store = store(Allocator::default(), |options| options.limit_bytes = Some(limit));
    let full = (0..1 << 20).find(|&key| store.store(key, &[3; 4096]).is_err());
    assert!(full.is_some_and(|key| key > 10_000), "slots are counted: {full:?}");
    assert!(store.held_bytes() <= limit);
}

#[test]
fn a_full_store_accepts_again_below_its_threshold_only() {
    let store = store(Allocator::default(), |options| {
        options.limit_bytes = Some(1 << 20);
        options.accept_percent = 50;
    });
    let full = (0..).find(|&key| store.store(key, &good(key as u32)).is_err()).unwrap();
    (0..full / 5).for_each(|key| assert!(store.invalidate(key)));
    store.compact();
    assert_eq!(store.store(0, &good(0)), Err(StoreError::Full), "80 % is above the threshold");
    (full / 5..full * 3 / 5).for_each(|key| assert!(store.invalidate(key)));
    store.compact();
    assert!(store.store(0, &good(0)).is_ok(), "40 % is below it");
}

#[test]
fn a_limit_that_nothing_fits_under_refuses_everything() {
    let store = store(Allocator::default(), |options| options.limit_bytes = Some(1000));
    assert_eq!(store.store(0, &good(1)), Err(StoreError::Full));
    assert_eq!((store.len(), store.stats().pool.pages), (0, PageCount::ZERO));
}

#[test]
fn a_pool_without_memory_refuses_and_recovers() {
    for allocator in Allocator::ALL {
        let source = FailingPages::new(Arc::new(HeapPages), 20);
        let pool = PoolOptions::new(allocator)
            .with_source(Arc::new(source.clone()))
            .with_arena_bytes(64 << 20);
        let store = store_over(&pool, |_| {});
        let failed = (0..10_000).find(|&key| store.store(key, &good(key as u32)).is_err()).unwrap();
        let again = store.store(failed, &good(1));
        assert!(matches!(again, Err(StoreError::Pool(AllocError::NoMemory(_)))), "{again:?}");
        assert_eq!(load(&store, failed), None);
        (0..failed).for_each(|key| assert_eq!(load(&store, key), Some(good(key as u32))));
        source.allow(u32::MAX);
        assert!(store.store(failed, &good(1)).is_ok());
        store.check();
    }
}

#[test]
fn an_emptied_store_gives_its_memory_back() {
    for allocator in Allocator::ALL {
        let store = store(allocator, |_| {});
        let page = good(1);
        (0..65_536).for_each(|key| assert!(store.store(key, &page).is_ok()));
        (0..65_536).for_each(|key| assert!(store.invalidate(key)));
        assert!(store.held_bytes() < 1 << 20, "{} bytes stay", store.held_bytes());
        store.compact();
        assert!(store.held_bytes() < 256 << 10, "{} bytes stay", store.held_bytes());
    }
}

/// A page that is about to be refused counts, and so does what a compaction takes while it frees.
#[test]
fn an_observer_never_sees_more_than_the_limit_of_a_store_that_keeps_all() {
    const KEYS: u64 = 1500;
    let limit = 4 << 20;
    for allocator in Allocator::ALL {
        let store = &store(allocator, |options| {
            options.limit_bytes = Some(limit);
            options.accept_percent = 100;
        });
        let (mut most, one) = (0, AtomicU64::new(1));
        let write = |thread| {
            let mut refused = 0;
            for n in 0..6 * KEYS {
                let key = thread * KEYS + n * 7919 % KEYS;
                let number = one.fetch_add(1, Ordering::Relaxed) as u32;
                let stored = store.store(key, &page(number, 4096));
                refused += u64::from(stored == Err(StoreError::Full));
            }
            refused
        };
        // Of one moment: `Store::held_bytes` adds up shards that change meanwhile.
        let look = || most = most.max(store.stats().held_bytes());
        let refused = beside(look, || at_once(0..2, write));
        let (refused, stats) = (refused.iter().sum::<u64>(), store.stats());
        assert!(refused > 0, "{allocator}: the limit was not reached");
        assert!(limit * 7 / 8 < most && most <= limit, "{allocator}: {most} bytes of {limit}");
        assert_eq!((stats.pool_limit_hit_total, stats.held_bytes()), (refused, store.held_bytes()));
        store.check();
    }
}
