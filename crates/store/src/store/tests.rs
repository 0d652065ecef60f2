//! Tests of what only the inside of a store shows.

use std::sync::Arc;

use super::*;
use crate::backing::MemoryBacking;
use crate::codec::CodecKind;
use crate::options::{BackingOptions, Incompressible};
use zfold_pool::{Allocator, Handle, PoolOptions};
use zfold_testing::random::{mixed, noisy};

/// A store whose objects have handles, by which tests damage them.
fn store(change: impl Fn(&mut StoreOptions)) -> Store {
    let pool = zfold_pool::create("test", &PoolOptions::new(Allocator::Zsmalloc)).unwrap();
    let mut options = StoreOptions::new(1000, CodecKind::Lz4.into());
    change(&mut options);
    Store::new(pool, &options).unwrap()
}

fn text_page() -> Vec<u8> {
    (0..4096_u32).map(|n| (n / 50 % 251) as u8).collect()
}

fn object_handle(store: &Store, key: u64) -> Handle {
    store.slots.lock(key).entry().handle()
}

/// Changes the first bytes of the object of a key.
fn damage(store: &Store, key: u64, with: &[u8]) {
    let (pool, slot) = (store.pages.objects.pool(), store.slots.lock(key));
    let Entry { state, .. } = slot.entry();
    let mut bytes = pool.read(slot.entry().handle()).unwrap().to_vec();
    bytes[..with.len()].copy_from_slice(with);
    let before = slot.replace(Entry::of_handle(state, pool.insert(&bytes).unwrap()));
    pool.free(before.handle()).unwrap();
}

#[test]
fn bytes_that_do_not_decode_are_an_error_and_counted() {
    let store = store(|_| {});
    store.store(1, &text_page()).unwrap();
    damage(&store, 1, &[0xFF; 16]);
    let error = store.load(1, &mut vec![0; 4096]).unwrap_err();
    assert_eq!(error, LoadError::Damaged { key: 1 });
    assert_eq!(store.stats().decompress_fail_total, 1);
    assert!(store.invalidate(1), "a damaged page can be dropped");
}

#[test]
fn the_key_header_is_in_front_of_each_object_and_is_checked() {
    let store = store(|options| options.key_header = true);
    let key = 0x123;
    let Stored::Compressed { len } = store.store(key, &text_page()).unwrap() else { panic!() };
    let handle = object_handle(&store, key);
    let pool = store.pages.objects.pool();
    assert_eq!(pool.read(handle).unwrap().len(), len + 8);
    assert_eq!(pool.read(handle).unwrap()[..8], key.to_le_bytes());
    damage(&store, key, &[9]);
    assert_eq!(store.load(key, &mut vec![0; 4096]), Err(LoadError::Damaged { key }));
}

#[test]
fn pages_are_read_by_the_codec_that_was_set_when_they_were_stored() {
    let others = [CodecKind::Page, CodecKind::Zstd].map(Into::into);
    let store = store(|options| options.recompression = others.to_vec());
    for codec in 0..3 {
        store.tune(&Tunables { codec, ..store.tunables() }).unwrap();
        store.store(codec.into(), &text_page()).unwrap();
    }
    let unknown = Tunables { codec: 3, ..store.tunables() };
    assert!(matches!(store.tune(&unknown), Err(OpenError::Option(_))));
    assert_eq!(store.tunables().codec, 2);
    let mut page = vec![0; 4096];
    for key in 0..3 {
        assert!(store.load(key, &mut page).unwrap() && page == text_page(), "codec {key}");
        assert_eq!(u64::from(store.slots.lock(key).entry().state.priority()), key);
    }
}

/// A kernel bug to avoid: how a page is read must not depend on an option that was different
/// when it was stored.
#[test]
fn a_page_is_read_as_it_was_stored_whatever_the_options_say_now() {
    let mut store = store(|_| {});
    let noise = crate::conformance::page(7, 4096);
    assert_eq!(store.store(1, &noise), Ok(Stored::Raw));
    store.store(2, &[5; 4096]).unwrap();
    store.pages.incompressible = Incompressible::Reject;
    store.tune(&Tunables { same_filled: false, ..store.tunables() }).unwrap();
    let mut page = vec![0; 4096];
    assert!(store.load(1, &mut page).unwrap() && page == noise);
    assert!(store.load(2, &mut page).unwrap() && page == [5; 4096]);
}

/// Which slot owns an object, by name or not, follows from the pool and the number of keys.
#[test]
fn objects_belong_to_slots_where_the_pool_can_and_keys_fit() {
    let owns = |allocator, slots, deduplicate| {
        let pool = zfold_pool::create("test", &PoolOptions::new(allocator)).unwrap();
        let mut options = StoreOptions::new(slots, CodecKind::Lz4.into());
        options.deduplicate = deduplicate;
        let store = Store::new(pool, &options).unwrap();
        store.store(slots - 1, &text_page()).unwrap();
        let mut page = vec![0; 4096];
        assert!(store.load(slots - 1, &mut page).unwrap() && page == text_page());
        store.check();
        store.slots.lock(slots - 1).entry().address().is_some()
    };
    assert!(owns(Allocator::Fit, 1000, false));
    assert!(owns(Allocator::Fit, 1 << 31, false));
    assert!(!owns(Allocator::Fit, (1 << 31) + 1, false), "no header has room for the key");
    assert!(!owns(Allocator::Fit, 1000, true), "several slots may share it");
    assert!(!owns(Allocator::Zsmalloc, 1000, false));
}

#[test]
fn an_object_of_another_slot_is_no_page() {
    let pool = zfold_pool::create("test", &PoolOptions::new(Allocator::Fit)).unwrap();
    let store = Store::new(pool, &StoreOptions::new(10, CodecKind::Lz4.into())).unwrap();
    store.store(1, &text_page()).unwrap();
    store.store(2, &text_page()).unwrap();
    let [one, two] = [1, 2].map(|key| store.slots.lock(key).entry());
    store.slots.lock(1).replace(two);
    assert_eq!(store.load(1, &mut vec![0; 4096]), Err(LoadError::Damaged { key: 1 }));
    store.slots.lock(1).replace(one);
    assert!(store.load(1, &mut vec![0; 4096]).unwrap());
    store.check();
}

/// A mark says that somebody will come back and expects the page as it was.
#[test]
fn a_marked_page_is_not_moved() {
    let pool = zfold_pool::create("test", &PoolOptions::new(Allocator::Fit)).unwrap();
    let store = Store::new(pool, &StoreOptions::new(1000, CodecKind::Lz4.into())).unwrap();
    (0..1000).for_each(|key| {
        store.store(key, &crate::conformance::page(2, 4096)).unwrap();
    });
    (0..1000).filter(|key| key % 4 != 0).for_each(|key| assert!(store.invalidate(key)));
    let address = |key| store.slots.lock(key).entry().address();
    let mark = |key, on| {
        let mut slot = store.slots.lock(key);
        let state = slot.entry().state;
        slot.set_state(state.set(Flag::Marked, on));
    };
    let before: Vec<_> = (0..1000).step_by(4).map(address).collect();
    (0..1000).step_by(4).for_each(|key| mark(key, true));
    assert_eq!(store.compact(), 0);
    assert_eq!((0..1000).step_by(4).map(address).collect::<Vec<_>>(), before);
    (0..1000).step_by(4).for_each(|key| mark(key, false));
    assert!(store.compact() > 0);
    assert_ne!((0..1000).step_by(4).map(address).collect::<Vec<_>>(), before);
    store.check();
}

/// Pages that shrink to between a quarter and three quarters, by any length.
fn page_of_any_length(at: u64) -> Vec<u8> {
    noisy(at, 1024 + mixed(at) as usize % 2048, 4096)
}

/// Pages that shrink to four lengths: what is left of a hole fits nothing.
fn page_of_four_lengths(at: u64) -> Vec<u8> {
    crate::conformance::page((at << 3 | (2 + at % 4)) as u32, 4096)
}

/// Fills a store of 16 MiB twice over, and returns how often its pool's locks were taken.
fn fill_beyond_the_limit(allocator: Allocator, page: fn(u64) -> Vec<u8>) -> u64 {
    const LIMIT: u64 = 16 << 20;
    let pool = zfold_pool::create("test", &PoolOptions::new(allocator)).unwrap();
    let mut options = StoreOptions::new(PAGES, CodecKind::Lz4.into());
    options.limit_bytes = Some(LIMIT);
    options.backing = Some(BackingOptions::new(Arc::new(MemoryBacking::new(128 << 20))));
    let store = Store::new(pool, &options).unwrap();
    let pool = store.pages.objects.pool();
    pool.watch_locks(true);
    for at in 0..2 * PAGES {
        // Not in the order in which they leave.
        store.store(at * 7919 % PAGES, &page(at)).unwrap();
    }
    let held = store.held_bytes();
    assert!(LIMIT - LIMIT / 32 < held && held <= LIMIT, "{allocator}: {held}");
    let stats = store.stats();
    assert!(stats.backed_pages > PAGES / 2, "{allocator}: {stats:?}");
    let here = stats.stored_pages - stats.backed_pages;
    assert!(here * 4096 > LIMIT, "{allocator}: {here} pages of some 2 KiB");
    store.check();
    pool.lock_stats().iter().map(|lock| lock.acquisitions).sum()
}

const PAGES: u64 = 20_000;

#[test]
fn a_full_store_keeps_what_fits() {
    for allocator in Allocator::ALL {
        fill_beyond_the_limit(allocator, page_of_any_length);
    }
}

/// Each compaction of a large pool takes its lock for every segment that it looks at.
#[test]
fn a_full_store_compacts_for_many_pages_at_once() {
    let taken = fill_beyond_the_limit(Allocator::Fit, page_of_any_length);
    assert!(taken < 8 * PAGES, "{taken} for {} pages", 2 * PAGES);
    let taken = fill_beyond_the_limit(Allocator::Fit, page_of_four_lengths);
    assert!(taken < 16 * PAGES, "{taken} for {} pages of four lengths", 2 * PAGES);
}
