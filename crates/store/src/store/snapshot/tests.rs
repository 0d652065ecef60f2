//! Tests of snapshots.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::backing::{Fault, Faults, FaultyBacking, MemoryBacking};
use crate::codec::CodecKind;
use crate::conformance::page;
use crate::content::Stored;
use crate::entry::Entry;
use crate::error::{LoadError, StoreError};
use crate::files::beside;
use crate::options::{BackingOptions, Incompressible, StoreOptions};
use crate::store::Store;
use crate::store::postprocess::Selection;
use zfold_pool::{PoolOptions, create};

fn store(change: impl Fn(&mut StoreOptions)) -> Store {
    let mut options = StoreOptions::new(10_000, CodecKind::Lz4.into());
    change(&mut options);
    Store::new(create("store", &PoolOptions::default()).unwrap(), &options).unwrap()
}

fn load(store: &Store, key: u64) -> Option<Vec<u8>> {
    let mut buffer = vec![0; 4096];
    store.load(key, &mut buffer).unwrap().then_some(buffer)
}

/// Pages of all kinds, some of them on a backing file.
fn filled() -> Store {
    let store = store(|options| {
        let backing = Arc::new(MemoryBacking::new(1 << 20));
        options.backing = Some(BackingOptions::new(backing));
    });
    (0..200).for_each(|key| {
        let _ = store.store(key * 3, &page(key as u32, 4096)).unwrap();
    });
    store.writeback(&Selection::from(0..100), None).unwrap();
    store
}

fn label(path: &Path) -> Vec<u8> {
    header(&mut fs::File::open(path).unwrap()).unwrap().label
}

fn saved(store: &Store) -> Vec<u8> {
    let mut file = Vec::new();
    store.save(b"a label", &mut file).unwrap();
    file
}

#[test]
fn what_was_saved_is_restored_whatever_the_codec() {
    let original = filled();
    let file = saved(&original);
    for codec in CodecKind::ALL {
        let store = store(|options| options.codec = codec.into());
        let report = store.restore(&mut &file[..]).unwrap();
        assert_eq!((report.pages, report.bytes), (200, file.len() as u64));
        for key in 0..600 {
            assert!(load(&store, key) == load(&original, key), "{key} with {codec:?}");
        }
        store.check();
    }
    assert_eq!(verify(&mut &file[..]).unwrap().pages, 200);
    original.check();
}

#[test]
fn one_wrong_byte_and_one_end_too_early_are_noticed_anywhere_and_leave_the_store_empty() {
    let file = saved(&filled());
    for at in (0..file.len()).step_by(997).chain(0..64).chain(file.len() - 40..file.len()) {
        let mut damaged = file.clone();
        damaged[at] ^= 4;
        for bytes in [&damaged[..], &file[..at]] {
            let store = store(|_| {});
            let error = store.restore(&mut &*bytes).expect_err("it is wrong");
            assert!(store.is_empty(), "{at}: {error}");
            store.check();
        }
        let error = store(|_| {}).restore(&mut &file[..at]).expect_err("cut off");
        assert!(matches!(error, SnapshotError::Damaged(_) | SnapshotError::Foreign), "{error}");
    }
}

#[test]
fn snapshots_that_do_not_fit_are_refused() {
    let file = saved(&filled());
    let small = store(|options| options.slots = 50);
    let refused = small.restore(&mut &file[..]).unwrap_err();
    assert!(matches!(refused, SnapshotError::Slots { slots: 50, .. }), "{refused}");
    let used = filled();
    assert!(matches!(used.restore(&mut &file[..]), Err(SnapshotError::NotEmpty)));
    let pool = PoolOptions::default().with_page_size(zfold_pool::PageSize::KIB16);
    let options = StoreOptions::new(10_000, CodecKind::Lz4.into());
    let large = Store::new(create("store", &pool).unwrap(), &options).unwrap();
    let refused = large.restore(&mut &file[..]).unwrap_err();
    assert!(matches!(refused, SnapshotError::PageLength { snapshot: 4096, store: 16384 }));
    let mut newer = file.clone();
    newer[8] = 2;
    let refused = store(|_| {}).restore(&mut &newer[..]).unwrap_err();
    assert!(matches!(refused, SnapshotError::Version(2)), "{refused}");
    let tight = store(|options| options.limit_bytes = Some(100_000));
    let refused = tight.restore(&mut &file[..]).unwrap_err();
    assert!(matches!(refused, SnapshotError::Store(StoreError::Full)), "{refused}");
    assert!(tight.is_empty());
}

#[test]
fn a_snapshot_is_of_the_moment_it_began() {
    /// Changes the store while it is saved: at every write of the file.
    struct Meddler<'a> {
        store: &'a Store,
        file: Vec<u8>,
        round: u64,
    }
    impl Write for Meddler<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.file.extend_from_slice(bytes);
            self.round += 1;
            let key = self.round * 7919 % 700;
            let store = self.store;
            match self.round % 4 {
                0 => _ = store.invalidate(key),
                1 => _ = store.update(key, |page| page[9] ^= 1).unwrap(),
                2 => _ = store.writeback(&Selection::from(key..key + 9), None),
                _ => _ = store.store(key, &page(self.round as u32, 4096)).unwrap(),
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let store = filled();
    // Twice: the second epoch is the first one's turned over again.
    for _ in 0..2 {
        let before: Vec<_> = (0..700).map(|key| load(&store, key)).collect();
        let mut meddler = Meddler { store: &store, file: Vec::new(), round: 0 };
        let report = store.save(b"", &mut meddler).unwrap();
        assert_eq!(report.pages, before.iter().flatten().count() as u64);
        let restored = filled_from(&meddler.file);
        for (key, page) in before.iter().enumerate() {
            assert!(load(&restored, key as u64) == *page, "{key}");
        }
        store.check();
    }
}

fn filled_from(file: &[u8]) -> Store {
    let store = store(|_| {});
    store.restore(&mut &file[..]).unwrap();
    store
}

#[test]
fn a_file_is_replaced_as_a_whole_or_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.snapshot");
    let store = filled();
    let report = store.save_to(b"first", &path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), report.bytes);
    assert_eq!(label(&path), b"first");
    // A page that cannot be read, because its slot names another's object: the old file stays.
    let other = store.slots.lock(327).entry();
    let state = store.slots.lock(303).entry().state;
    store.slots.lock(303).replace(Entry { state, ..other });
    assert!(store.save_to(b"second", &path).is_err());
    assert_eq!(label(&path), b"first");
    assert_eq!(label(&beside(&path, ".incomplete")), b"second");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "no part is left");
    let restored = self::store(|_| {});
    assert_eq!(restored.restore_from(&path).unwrap(), report);
    let missing = restored.restore_from(&folder.path().join("none"));
    assert!(matches!(missing, Err(SnapshotError::NotEmpty | SnapshotError::Io(_))));
}

#[test]
fn only_files_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let store = filled();
    let refused = |path: &Path| match store.save_to(b"", path) {
        Err(SnapshotError::Io(error)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(refused(Path::new("/dev/null")).contains("not a regular file"));
    assert!(!Path::new("/dev/null").is_file());
    assert!(refused(folder.path()).contains("not a regular file"));
    symlink(at("nothing"), at("dangling")).unwrap();
    refused(&at("dangling"));
    // A link to a file stays one.
    fs::write(at("target"), "old").unwrap();
    symlink(at("target"), at("link")).unwrap();
    store.save_to(b"label", &at("link")).unwrap();
    assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
    assert_eq!(label(&at("target")), b"label");
    // One that was put where the new file is to grow is not followed.
    fs::write(at("victim"), "precious").unwrap();
    symlink(at("victim"), beside(&at("new"), &format!(".part{}", std::process::id()))).unwrap();
    store.save_to(b"label", &at("new")).unwrap();
    assert_eq!(fs::read(at("victim")).unwrap(), b"precious");
    assert_eq!(label(&at("new")), b"label");
    let left = fs::read_dir(&folder).unwrap().count();
    assert_eq!(left, 5, "dangling, target, link, victim, new");
}

/// Changes pages that were not swept yet, and gives up when so many bytes are written.
struct Full<'a> {
    store: &'a Store,
    room: usize,
    panics: bool,
}

impl Write for Full<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.store.invalidate_range(400..410);
        let left = self.room.checked_sub(bytes.len());
        assert!(left.is_some() || !self.panics, "the sink gives up");
        self.room = left.ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_file_that_cannot_be_written_costs_the_snapshot_only() {
    let store = filled();
    for panics in [false, true] {
        let whole = saved(&store).len();
        for room in [0, 100, whole / 2] {
            let sink = &mut Full { store: &store, room, panics };
            let ended = catch_unwind(AssertUnwindSafe(|| store.save(b"", sink)));
            assert!(matches!(ended, Err(_) | Ok(Err(SnapshotError::Io(_)))), "{ended:?}");
            assert_eq!(ended.is_err(), panics);
            store.check();
            let restored = filled_from(&saved(&store));
            for key in 0..600 {
                assert!(load(&restored, key) == load(&store, key), "{key} after {room} bytes");
            }
        }
    }
}

/// A store of 20 pages, and its backing file, on which page 5 lies alone.
fn with_page_5_backed() -> (Store, Arc<FaultyBacking<MemoryBacking>>) {
    let backing = Arc::new(FaultyBacking::new(MemoryBacking::new(1 << 20), Faults::default(), 1));
    let store = store(|options| {
        let backing = Arc::clone(&backing) as Arc<dyn crate::backing::Backing>;
        options.backing = Some(BackingOptions::new(backing));
    });
    (0..20).for_each(|key| {
        let _ = store.store(key, &page((key as u32) << 3 | 2, 4096)).unwrap();
    });
    store.writeback(&Selection::from(5..6), None).unwrap();
    (store, backing)
}

#[test]
fn a_page_that_cannot_be_read_is_lost_and_no_other() {
    let (store, backing) = with_page_5_backed();
    backing.inject(Fault::ReadError);
    let mut file = Vec::new();
    let report = store.save(b"", &mut file).unwrap();
    assert_eq!((report.pages, report.lost_pages), (20, 1));
    for codec in CodecKind::ALL {
        let restored = self::store(|options| options.codec = codec.into());
        assert_eq!(restored.restore(&mut &file[..]).unwrap().lost_pages, 1);
        // Also what is saved and restored once more.
        let again = self::store(|_| {});
        assert_eq!(again.restore(&mut &saved(&restored)[..]).unwrap().lost_pages, 1);
        for restored in [restored, again] {
            for key in (0..20).filter(|key| *key != 5) {
                assert!(load(&restored, key) == load(&store, key), "{key} with {codec:?}");
            }
            let error = restored.load(5, &mut [0; 4096]).expect_err("it is lost");
            assert_eq!(error, LoadError::Damaged { key: 5 }, "{codec:?}");
            let _ = restored.store(5, &page(9, 4096)).unwrap();
            assert!(load(&restored, 5) == Some(page(9, 4096)), "it can be written");
            restored.check();
        }
    }
    assert!(load(&filled_from(&saved(&store)), 5) == load(&store, 5), "it was for once");
}

#[test]
fn a_snapshot_with_lost_pages_leaves_the_file_before_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("saved");
    let (store, backing) = with_page_5_backed();
    store.save_to(b"", &path).unwrap();
    let before = fs::read(&path).unwrap();
    let _ = store.store(6, &page(1, 4096)).unwrap();
    backing.inject(Fault::ReadError);
    let error = store.save_to(b"", &path).unwrap_err();
    let SnapshotError::Lost { pages: 1, saved } = &error else { panic!("{error}") };
    assert_eq!(*saved, folder.path().join("saved.incomplete"));
    assert!(error.to_string().contains("saved.incomplete"), "{error}");
    assert!(fs::read(&path).unwrap() == before);
    let restored = self::store(|_| {});
    assert_eq!(restored.restore_from(saved).unwrap().lost_pages, 1);
    assert!(load(&restored, 6) == Some(page(1, 4096)));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else is left");
}

/// A store that refuses incompressible pages takes one that compresses to its own length, and
/// took what it had saved of that for damage.
#[test]
fn a_page_compressed_to_its_own_length_is_restored() {
    let reject = || store(|options| options.incompressible = Incompressible::Reject);
    let original = reject();
    let noise = page(7, 4096);
    let found = (3800..4096).any(|noisy| {
        let mut page = noise.clone();
        page[noisy..].fill(0);
        original.store(1, &page) == Ok(Stored::Compressed { len: 4096 })
    });
    assert!(found, "some page has this length");
    let restored = reject();
    restored.restore(&mut &saved(&original)[..]).unwrap();
    assert!(load(&restored, 1) == load(&original, 1));
}
