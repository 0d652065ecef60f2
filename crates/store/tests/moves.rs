//! Objects that belong to slots: what they cost, and that every page keeps its bytes while several
//! threads compact beside all else that a store does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use zfold_pool::{Allocator, Contexts, PageSize, PoolOptions, create};
use zfold_store::backing::MemoryBacking;
use zfold_store::{BackingOptions, CodecKind, Recompress, Selection, Store, StoreOptions};
use zfold_testing::Random;
use zfold_testing::wait::{at_once, beside};

/// Keys that the threads share.
const KEYS: u64 = 600;

/// A page that says whose it is and from what it was made; of any length when compressed.
fn page(key: u64, version: u64, len: usize) -> Vec<u8> {
    let mut page = vec![0; len];
    page[..8].copy_from_slice(&key.to_le_bytes());
    page[8..16].copy_from_slice(&version.to_le_bytes());
    let noise = 16 + version as usize % 23 * len / 24;
    Random::new(version).fill(&mut page[16..noise.max(16)]);
    page
}

fn assert_is_of(key: u64, found: &[u8]) {
    let version = u64::from_le_bytes(found[8..16].try_into().unwrap());
    assert!(found == page(key, version, found.len()), "page {key}, version {version}");
}

fn store(page_size: PageSize, change: impl Fn(&mut StoreOptions)) -> Store {
    let mut pool = PoolOptions::new(Allocator::Fit).with_page_size(page_size);
    (pool.rules.contexts, pool.cpus) = (Contexts::Concurrent, Some(4));
    let mut options = StoreOptions::new(KEYS, CodecKind::Lz4.into());
    change(&mut options);
    Store::new(create("moves", &pool).unwrap(), &options).unwrap()
}

/// One thread's part: what clients of a store do.
fn use_store(store: &Store, thread: u64, steps: u64) {
    let mut random = Random::new(thread);
    let mut found = vec![0; store.page_len()];
    for _ in 0..steps {
        let (key, version) = (random.below(KEYS), random.word() >> 8);
        match random.below(16) {
            0..=4 => {
                store.store(key, &page(key, version, found.len())).unwrap();
            }
            5 => {
                store.overwrite(key, &page(key, version, found.len())).unwrap();
            }
            6 => {
                let new = page(key, version, found.len());
                store.update(key, |page| page.copy_from_slice(&new)).unwrap();
            }
            7..=8 => {
                store.invalidate(key);
            }
            _ => {
                if store.load(key, &mut found).unwrap() {
                    assert_is_of(key, &found);
                }
            }
        }
    }
}

/// Runs clients beside compaction on two threads, and `other` work on another, again and again.
fn stress(store: &Store, steps: u64, other: impl FnMut() + Send) {
    let clients = || at_once(0..3, |thread| use_store(store, thread, steps));
    let compact = || _ = store.compact();
    beside(other, || beside(compact, || beside(compact, clients)));
    assert!(store.stats().pool.objects_moved_total > 0, "nothing was moved");
    store.check();
    let mut found = vec![0; store.page_len()];
    for key in 0..KEYS {
        if store.load(key, &mut found).unwrap() {
            assert_is_of(key, &found);
        }
    }
    store.invalidate_range(0..KEYS);
    store.compact();
    assert_eq!(store.stats().pool.objects, 0);
    assert_eq!(store.stats().pool.pages.0, 0);
    store.check();
}

#[test]
fn pages_keep_their_bytes_while_threads_compact_and_snapshots_are_saved() {
    for (page_size, steps) in [(PageSize::KIB4, 6000), (PageSize::KIB64, 600)] {
        let store = store(page_size, |_| {});
        stress(&store, steps, || {
            let mut snapshot = Vec::new();
            let report = store.save(b"", &mut snapshot).unwrap();
            assert_eq!(report.lost_pages, 0);
            let restored = self::store(page_size, |_| {});
            restored.restore(&mut &snapshot[..]).unwrap();
            let mut found = vec![0; store.page_len()];
            for key in 0..KEYS {
                if restored.load(key, &mut found).unwrap() {
                    assert_is_of(key, &found);
                }
            }
        });
    }
}

#[test]
fn pages_keep_their_bytes_while_threads_compact_and_others_work_on_pages() {
    for deduplicate in [false, true] {
        let store = store(PageSize::KIB4, |options| {
            options.deduplicate = deduplicate;
            options.recompression = vec![CodecKind::Page.into()];
            options.backing = Some(BackingOptions::new(Arc::new(MemoryBacking::new(16 << 20))));
        });
        stress(&store, 6000, || {
            store.recompress(&Recompress::new(Selection::from(0..KEYS / 2), 1)).unwrap();
            store.writeback(&Selection::from(0..KEYS / 4), Some(40)).unwrap();
        });
        let stats = store.stats();
        assert!(stats.recompressed_total > 0 && stats.backing_writes_total > 0);
    }
}

/// The second page after one often lies where that one lay. A choice of it must not pass for that
/// of the first one, which the same batch has.
#[test]
fn a_page_selected_twice_and_replaced_meanwhile_is_not_written_as_it_was() {
    let store = store(PageSize::KIB4, |options| {
        options.backing = Some(BackingOptions::new(Arc::new(MemoryBacking::new(16 << 20))));
    });
    let again_and_again = Selection::Keys(vec![0..1; 100_000]);
    let (stop, batches) = (AtomicBool::new(false), AtomicU64::new(0));
    let batches_now = || batches.load(Ordering::Relaxed);
    thread::scope(|scope| {
        let processor = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                store.writeback(&again_and_again, None).unwrap();
                batches.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut found = vec![0; store.page_len()];
        let wrong = (0..300_u64).find(|round| {
            let before = batches_now();
            // Of one length.
            let pages = [1, 2, 3, 4, 5, 6].map(|n| page(0, (round * 6 + n) * 23, found.len()));
            for page in &pages {
                store.store(0, page).unwrap();
            }
            while batches_now() < before + 2 && !processor.is_finished() {
                thread::yield_now();
            }
            !store.load(0, &mut found).unwrap() || found != pages[5]
        });
        stop.store(true, Ordering::Relaxed);
        assert_eq!(wrong, None, "an old page came back");
    });
    store.check();
}

/// zram takes 72 bytes for such a page: 16 of its table, 8 of a handle's record, and a class of 48,
/// since 8 more are before the object.
#[test]
fn pages_of_forty_bytes_cost_less_than_in_zram() {
    let pages = 20_000;
    let mut options = StoreOptions::new(pages, CodecKind::Lz4.into());
    options.pool = PoolOptions::new(Allocator::Fit).with_cpus(1);
    let store = Store::open(&options).unwrap();
    for key in 0..pages {
        let mut page = vec![0; 4096];
        for (at, word) in page[..1024].chunks_exact_mut(256).enumerate() {
            word[..4].copy_from_slice(&(key as u32 * 77 + at as u32).to_le_bytes());
        }
        store.store(key, &page).unwrap();
    }
    let stats = store.stats();
    let payload = stats.pool.payload_bytes / pages;
    assert!((30..=60).contains(&payload), "{payload}");
    let beside = (store.held_bytes() - stats.pool.payload_bytes) / pages;
    assert!(beside < 30, "{beside} bytes beside {payload}");
}
