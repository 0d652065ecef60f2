//! Pages on a backing file: that they come back, that memory is freed, and that a file that fails
//! is an error on the page concerned and nothing worse.

mod backed;

use std::collections::BTreeSet;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backed::{faulty, good, load, store_with};
use zfold_pool::{PoolOptions, create};
use zfold_store::backing::{Backing, Fault, Faults, MemoryBacking};
use zfold_store::conformance::{Model, Op, page};
use zfold_store::{
    BackingOptions, CodecKind, LoadError, ProcessError, Selection, Store, StoreOptions,
};
use zfold_testing::Random;
use zfold_testing::random::noise;
use zfold_testing::wait::at_once;

fn fill(store: &Store, keys: u64) {
    (0..keys).for_each(|key| {
        let _ = store.store(key, &good(key)).unwrap();
    });
}

/// Fills slots with pages that do not compress.
fn fill_raw(store: &Store, keys: u64) {
    (0..keys).for_each(|key| {
        let _ = store.store(key, &noise(key, 4096)).unwrap();
    });
}

#[test]
fn pages_written_back_leave_memory_and_come_back() {
    let backing = faulty(8 << 20);
    let store = store_with(&backing, |_| {});
    fill(&store, 1000);
    let before = store.held_bytes();
    assert_eq!(store.writeback(&Selection::All, None).unwrap().pages, 1000);
    store.compact();
    let stats = store.stats();
    assert!(store.held_bytes() < before / 4, "{before} to {}", store.held_bytes());
    assert_eq!((stats.stored_pages, stats.backed_pages, stats.pool.objects), (1000, 1000, 0));
    let per_page = stats.backing_used_bytes / 1000;
    assert!(per_page <= 2048, "{per_page} bytes of file a page");
    for key in 0..1000 {
        assert!(load(&store, key).unwrap() == good(key), "{key}");
    }
    assert_eq!(store.stats().backing_reads_total, 1000);
    store.check();
    // Overwritten, dropped and changed in place: the file's room comes back.
    (0..300).for_each(|key| {
        let _ = store.store(key, &good(key + 1)).unwrap();
    });
    (300..600).for_each(|key| assert!(store.invalidate(key)));
    (600..1000).for_each(|key| {
        let _ = store.update(key, |page| page[5] = 1).unwrap();
    });
    assert_eq!(store.stats().backing_used_bytes, 0);
    for key in 600..1000 {
        let mut expected = good(key);
        expected[5] = 1;
        assert!(load(&store, key).unwrap() == expected);
    }
    store.check();
}

#[test]
fn what_was_used_lately_stays_in_memory() {
    let backing = faulty(32 << 20);
    let store = store_with(&backing, |_| {});
    fill(&store, 1000);
    // The hand takes all second chances away, then pages 0 to 99 are used.
    assert_eq!(store.writeback(&Selection::Lru, Some(1)).unwrap().pages, 1);
    (0..100).for_each(|key| {
        let _ = load(&store, key).unwrap();
    });
    assert_eq!(store.writeback(&Selection::Lru, Some(850)).unwrap().pages, 850);
    let reads = store.stats().backing_reads_total;
    (1..100).for_each(|key| {
        let _ = load(&store, key).unwrap();
    });
    assert_eq!(store.stats().backing_reads_total, reads, "all of them are in memory");
}

#[test]
fn selections_take_what_they_name() {
    let backing = faulty(32 << 20);
    let store = store_with(&backing, |_| {});
    fill(&store, 100);
    for key in 100..110 {
        store.store(key, &page((key as u32) << 3 | 7, 4096)).unwrap();
    }
    let pages = |selection: Selection| store.writeback(&selection, None).unwrap().pages;
    assert_eq!(pages(Selection::Idle), 0);
    assert_eq!(store.mark_idle(Some(Duration::from_secs(1000))), 0, "nothing is that old");
    assert_eq!(store.mark_idle(None), 110);
    load(&store, 105).unwrap();
    assert_eq!(pages(Selection::HugeIdle), 9);
    assert_eq!(pages(Selection::Huge), 1);
    assert_eq!(pages(Selection::Keys(vec![5..7, 90..200])), 12);
    assert_eq!(pages(Selection::Idle), 88);
    assert_eq!(pages(Selection::All), 0);
    store.check();
}

#[test]
fn the_writeback_limit_counts_down_and_refuses() {
    let backing = faulty(32 << 20);
    let store = store_with(&backing, |_| {});
    fill(&store, 100);
    let mut limited = store.tunables();
    limited.writeback_limit_pages = Some(40);
    store.tune(&limited).unwrap();
    assert_eq!(store.writeback(&Selection::All, None).unwrap().pages, 40);
    assert_eq!(store.tunables().writeback_limit_pages, Some(0));
    let refused = store.writeback(&Selection::All, None).unwrap_err();
    assert!(matches!(refused, ProcessError::WritebackLimit));
    backing.set(Faults::default().with(Fault::WriteError, 1000));
    limited.writeback_limit_pages = Some(5);
    store.tune(&limited).unwrap();
    assert!(matches!(store.writeback(&Selection::All, None), Err(ProcessError::Backing(_))));
    assert_eq!(store.tunables().writeback_limit_pages, Some(5), "given back");
}

#[test]
fn pages_written_before_an_error_count_against_the_writeback_limit() {
    let backing = faulty(4 * 4096);
    let store = store_with(&backing, |_| {});
    fill_raw(&store, 7);
    // The file has two holes, of a page each, for three pages.
    store.writeback(&Selection::from(0..4), None).unwrap();
    assert!(store.invalidate(0) && store.invalidate(2));
    let mut limited = store.tunables();
    limited.writeback_limit_pages = Some(5);
    store.tune(&limited).unwrap();
    let error = store.writeback(&Selection::from(4..7), None).unwrap_err();
    assert!(matches!(error, ProcessError::BackingFull), "{error}");
    assert_eq!(store.stats().backed_pages, 4);
    assert_eq!(store.tunables().writeback_limit_pages, Some(3), "two of five are used up");
    store.check();
}

#[test]
fn a_page_selected_twice_is_written_once() {
    let backing = faulty(32 << 20);
    let store = store_with(&backing, |_| {});
    fill(&store, 20);
    let twice = Selection::Keys(vec![0..10, 5..15]);
    assert_eq!(store.writeback(&twice, Some(15)).unwrap().pages, 15);
    store.check();
}

/// A backing that wants discards: which units were written and not discarded since, and whether
/// the next write panics.
#[derive(Debug)]
struct Tidy(MemoryBacking, Mutex<BTreeSet<u64>>, AtomicBool);

impl Tidy {
    fn new(panics: bool) -> Self {
        Self(MemoryBacking::new(1 << 20), Mutex::default(), panics.into())
    }

    fn units(offset: u64, len: u64) -> std::ops::Range<u64> {
        offset / 512..(offset + len) / 512
    }

    fn used_bytes(&self) -> u64 {
        self.1.lock().unwrap().len() as u64 * 512
    }
}

impl Backing for Tidy {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn align(&self) -> usize {
        self.0.align()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, out)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        assert!(!self.2.swap(false, Ordering::Relaxed), "the first write panics");
        for unit in Self::units(offset, data.len() as u64) {
            assert!(self.1.lock().unwrap().insert(unit), "unit {unit} was not discarded");
        }
        self.0.write_at(offset, data)
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let units = Self::units(offset, len);
        self.1.lock().unwrap().retain(|unit| !units.contains(unit));
        self.0.discard(offset, len)
    }

    fn wants_discards(&self) -> bool {
        true
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}

#[test]
fn pages_chosen_when_a_write_panicked_can_be_chosen_again() {
    let store = store_with(&faulty(4096), |options| {
        options.backing.as_mut().unwrap().backing = Arc::new(Tidy::new(true));
    });
    fill(&store, 20);
    let write = || store.writeback(&Selection::All, None);
    assert!(catch_unwind(AssertUnwindSafe(write)).is_err());
    assert_eq!(write().unwrap().pages, 20);
    (0..20).for_each(|key| assert!(load(&store, key).unwrap() == good(key)));
}

#[test]
fn a_backing_that_wants_to_know_is_told_of_all_that_is_freed() {
    let tidy = Arc::new(Tidy::new(false));
    let store = store_with(&faulty(4096), |options| {
        options.backing.as_mut().unwrap().backing = Arc::clone(&tidy) as Arc<dyn Backing>;
    });
    for round in 0..8 {
        fill(&store, 100);
        assert_eq!(store.writeback(&Selection::All, None).unwrap().pages, 100);
        assert_eq!(tidy.used_bytes(), store.stats().backing_used_bytes);
        (0..100).for_each(|key| assert!(load(&store, key).unwrap() == good(key)));
        (0..100).filter(|key| key % 3 == round % 3).for_each(|key| {
            assert!(store.invalidate(key));
        });
        assert_eq!(tidy.used_bytes(), store.stats().backing_used_bytes);
    }
    for key in 0..100 {
        store.invalidate(key);
    }
    assert_eq!(tidy.used_bytes(), 0);
}

#[test]
fn a_write_that_fails_leaves_pages_in_memory() {
    for fault in [Fault::WriteError, Fault::NoSpace, Fault::ShortWrite] {
        let backing = faulty(32 << 20);
        let store = store_with(&backing, |_| {});
        fill(&store, 100);
        backing.set(Faults::default().with(fault, 1000));
        let error = store.writeback(&Selection::All, None).unwrap_err();
        assert!(matches!(error, ProcessError::Backing(_)), "{error}");
        let stats = store.stats();
        assert_eq!((stats.backed_pages, stats.backing_used_bytes), (0, 0));
        assert!(stats.backing_failed_writes_total > 0);
        (0..100).for_each(|key| assert!(load(&store, key).unwrap() == good(key)));
        store.check();
        backing.heal();
        assert_eq!(store.writeback(&Selection::All, None).unwrap().pages, 100);
    }
}

#[test]
fn a_read_that_fails_is_an_error_on_its_page_and_passes() {
    let backing = faulty(32 << 20);
    let store = store_with(&backing, |_| {});
    fill(&store, 10);
    store.writeback(&Selection::from(0..5), None).unwrap();
    backing.set(Faults::default().with(Fault::ReadError, 1000));
    let error = load(&store, 3).unwrap_err();
    assert!(matches!(error, LoadError::Backing { key: 3, errno } if errno == 5), "{error:?}");
    assert!(store.update(3, |page| page[0] = 1).is_err());
    assert!(load(&store, 7).unwrap() == good(7), "pages in memory are not concerned");
    assert_eq!(store.stats().backing_failed_reads_total, 2);
    backing.heal();
    assert!(load(&store, 3).unwrap() == good(3));
}

/// A bit that is flipped when it is read, a write that was lost or went elsewhere: the bit may lie
/// in the padding behind a page, where nobody reads.
#[test]
fn bytes_that_come_back_wrong_are_an_error() {
    for fault in [Fault::FlippedBit, Fault::LostWrite, Fault::MisdirectedWrite] {
        let backing = faulty(32 << 20);
        let store = store_with(&backing, |_| {});
        fill(&store, 64);
        backing.set(Faults::default().with(fault, 1000));
        store.writeback(&Selection::All, None).unwrap();
        let mut damaged = 0;
        for key in 0..64 {
            match load(&store, key) {
                Ok(page) => assert!(page == good(key), "wrong bytes of {key}"),
                Err(error) => {
                    assert_eq!(error, LoadError::Damaged { key });
                    damaged += 1;
                }
            }
        }
        assert!(damaged > 0, "{fault:?} is not noticed");
        assert_eq!(store.stats().backing_damaged_total, damaged);
        assert!(store.store(3, &good(9)).is_ok() && load(&store, 3).unwrap() == good(9));
    }
}

/// Threads with their own keys under a limit that makes them write each other's pages back, over
/// a file that fails now and then, while another thread processes and takes snapshots.
#[test]
fn threads_and_processing_do_not_disturb_each_other() {
    let backing = faulty(16 << 20);
    let faults = Faults::default().with(Fault::WriteError, 50).with(Fault::NoSpace, 20);
    backing.set(faults);
    // The first write fails whatever the rates draw.
    backing.inject(Fault::WriteError);
    let strong: zfold_store::CodecSpec = "zstd:3".parse().unwrap();
    let store = store_with(&backing, |options| {
        options.limit_bytes = Some(1 << 20);
        options.recompression = vec![strong.into()];
        options.deduplicate = true;
    });
    at_once(0..3_u64, |thread| {
        let mut model = Model::new(&store, thread * 600);
        let mut random = Random::new(thread);
        for _ in 0..6000 {
            match Op::from_word(random.word()) {
                Op::WriteBack(_) => {
                    let _ = store.writeback(&Selection::Lru, Some(20));
                }
                op => model.apply(&op),
            }
        }
        model.finish();
    });
    store.check();
    assert!(store.is_empty());
    assert!(backing.count(Fault::WriteError) > 0, "faults happened");
}

#[test]
fn the_room_on_a_file_comes_back_when_the_store_goes() {
    use std::os::unix::fs::MetadataExt as _;
    use zfold_store::backing::{FileBacking, FileOptions};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cold");
    let backing = FileBacking::open(&path, &FileOptions::new().with_len(Some(8 << 20))).unwrap();
    let mut options = StoreOptions::new(1000, CodecKind::Lz4.into());
    options.backing = Some(BackingOptions::new(Arc::new(backing)));
    let pool = create("store", &PoolOptions::default()).unwrap();
    let store = Store::new(pool, &options).unwrap();
    drop(options);
    fill_raw(&store, 500);
    assert_eq!(store.writeback(&Selection::All, None).unwrap().pages, 500);
    store.sync().unwrap();
    let held = std::fs::metadata(&path).unwrap().blocks();
    assert!(held * 512 >= 500 * 4096, "{held} blocks");
    drop(store);
    let left = std::fs::metadata(&path).unwrap().blocks();
    assert!(left < held / 4, "{left} of {held} blocks (does this file system have holes?)");
}
