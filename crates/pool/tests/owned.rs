//! Objects with owners, beside others with handles: they keep their bytes wherever compaction moves
//! them, on one thread in any sequence and on several at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use proptest::prelude::*;
use zfold_pool::{
    Address, Allocator, Fit, Handle, HandleError, KEYS_MAX, Locking, Owners, PageCount, PageSize,
    Pool, PoolOptions, create,
};
use zfold_testing::Random;
use zfold_testing::wait::{at_once, beside};

const LOCKED: u64 = 1 << 63;
const PRESENT: u64 = 1 << 62;

/// A word and a length for each key: the least that an owner is.
#[derive(Debug)]
struct Table {
    words: Vec<AtomicU64>,
    lens: Vec<AtomicU64>,
}

// SAFETY: a word is locked by its highest bit, under which alone `with` below reads and changes it
// and touches objects; Acquire and Release.
unsafe impl Owners for Table {
    fn try_hold(&self, key: u32, at: Address) -> bool {
        let Some(word) = self.words.get(key as usize) else { return false };
        let named = PRESENT | at.to_bits();
        word.compare_exchange(named, named | LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn publish(&self, key: u32, at: Address) {
        self.words[key as usize].store(PRESENT | at.to_bits(), Ordering::Release);
    }
}

/// Returns what the object of a key and length has in it.
fn bytes(key: u32, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u32 ^ key.wrapping_mul(77)) as u8).collect()
}

struct World {
    pool: Box<dyn Pool>,
    table: Table,
}

impl World {
    fn new(options: &PoolOptions, keys: usize) -> Self {
        let words = || (0..keys).map(|_| AtomicU64::new(0)).collect();
        let table = Table { words: words(), lens: words() };
        Self { pool: create("owned", options).unwrap(), table }
    }

    fn owned(&self) -> &Fit {
        Fit::of(&*self.pool).expect("it was made as one")
    }

    /// Locks a key, lets `change` say what it names from now on, and checks and frees what it named
    /// before if that is another.
    fn with(&self, key: u32, change: impl FnOnce(Option<Address>) -> Option<(Address, usize)>) {
        let (word, len) = (&self.table.words[key as usize], &self.table.lens[key as usize]);
        while word.fetch_or(LOCKED, Ordering::Acquire) & LOCKED != 0 {
            thread::yield_now();
        }
        let before = word.load(Ordering::Relaxed) & !LOCKED;
        let old = (before & PRESENT != 0).then(|| Address::from_bits(before & !PRESENT));
        let old_len = len.load(Ordering::Relaxed) as usize;
        if let Some(at) = old {
            // SAFETY: the key is locked, and its word names a live object of that length.
            let found = unsafe { self.owned().read_owned(key, at, old_len) }.unwrap();
            assert_eq!(found, bytes(key, old_len));
        }
        let new = change(old);
        len.store(new.map_or(0, |(_, len)| len as u64), Ordering::Relaxed);
        let named = new.map_or(0, |(at, _)| PRESENT | at.to_bits());
        word.store(named, Ordering::Release);
        if let Some(at) = old.filter(|&at| new.is_none_or(|(new, _)| new != at)) {
            // SAFETY: it was live, of that length, and the key names it no more.
            unsafe { self.owned().free_owned(at, old_len) }.unwrap();
        }
    }

    fn store(&self, key: u32, len: usize) {
        let at = self.owned().insert_owned(key, &bytes(key, len)).unwrap();
        self.with(key, |_| Some((at, len)));
    }

    fn load(&self, key: u32) {
        let len = &self.table.lens[key as usize];
        self.with(key, |old| old.map(|at| (at, len.load(Ordering::Relaxed) as usize)));
    }

    fn drop(&self, key: u32) {
        self.with(key, |_| None);
    }

    fn compact(&self, stop: &AtomicBool) -> u64 {
        self.owned().compact_owned(&self.table, u64::MAX, stop)
    }

    /// Asserts that each key names its own object, and that all objects are named.
    fn check(&self, handles: usize) {
        self.pool.check();
        let mut objects = handles as u64;
        for (key, word) in (0..).zip(&self.table.words) {
            let word = word.load(Ordering::Relaxed);
            if word & PRESENT != 0 {
                objects += 1;
                let len = self.table.lens[key as usize].load(Ordering::Relaxed) as usize;
                let at = Address::from_bits(word & !PRESENT);
                assert!(self.owned().is_owned_at(key, at, len), "key {key} at {at:?}");
            }
        }
        assert_eq!(self.pool.stats().objects, objects);
    }
}

fn options(page_size: PageSize) -> PoolOptions {
    PoolOptions::new(Allocator::Fit).with_page_size(page_size)
}

/// Does what `words` say, to owned objects and others in turn.
fn run(world: &World, words: &[u32]) {
    let never = AtomicBool::new(false);
    let len_max = world.pool.len_max() as u32;
    let mut handles: Vec<(Handle, u32, usize)> = Vec::new();
    for &word in words {
        let (key, len) = (word >> 3 & 31, (1 + (word >> 8) % len_max) as usize);
        match word & 7 {
            0..=2 => world.store(key, len),
            3 => world.drop(key),
            4 => world.load(key),
            5 => handles.push((world.pool.insert(&bytes(key, len)).unwrap(), key, len)),
            6 if !handles.is_empty() => {
                let (handle, key, len) = handles.swap_remove(key as usize % handles.len());
                assert_eq!(*world.pool.read(handle).unwrap(), *bytes(key, len));
                world.pool.free(handle).unwrap();
            }
            _ => {
                world.compact(&never);
            }
        }
    }
    world.check(handles.len());
    for (handle, key, len) in handles {
        assert_eq!(*world.pool.read(handle).unwrap(), *bytes(key, len));
        world.pool.free(handle).unwrap();
    }
    (0..32).for_each(|key| world.drop(key));
    world.compact(&never);
    assert_eq!(world.pool.stats().pages, PageCount::ZERO);
    world.check(0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_sequence_keeps_every_byte(
        words in prop::collection::vec(any::<u32>(), 1..300),
        page_size in prop::sample::select(vec![PageSize::KIB4, PageSize::KIB16, PageSize::KIB64]),
    ) {
        run(&World::new(&options(page_size), 32), &words);
    }
}

#[test]
fn owned_objects_take_no_table_and_are_moved_together() {
    let world = World::new(&options(PageSize::KIB4), 4000);
    (0..4000).for_each(|key| world.store(key, 996));
    let filled = world.pool.stats();
    assert!(filled.metadata_bytes < 4000 * 9, "{filled:?}");
    (0..4000).filter(|key| key % 2 == 1).for_each(|key| world.drop(key));
    assert_eq!(world.pool.compact(u64::MAX), 0, "without their owners they stay");
    let freed = world.compact(&AtomicBool::new(false));
    assert!(freed * 100 > filled.pages.0 * 45, "{freed} of {}", filled.pages);
    assert!(world.pool.stats().objects_moved_total > 0);
    (0..4000).for_each(|key| world.load(key));
    world.check(0);
}

#[test]
fn what_no_owner_names_stays_where_it_is() {
    let world = World::new(&options(PageSize::KIB4), 600);
    (0..600).for_each(|key| world.store(key, 996));
    // On its way in: the key names another object, or none.
    let coming = world.owned().insert_owned(7, &bytes(7, 500)).unwrap();
    let beyond = world.owned().insert_owned(77_777, &bytes(9, 500)).unwrap();
    (0..600).filter(|key| key % 8 != 0).for_each(|key| world.drop(key));
    world.compact(&AtomicBool::new(false));
    for (key, at, content) in [(7, coming, 7), (77_777, beyond, 9)] {
        assert!(world.owned().is_owned_at(key, at, 500));
        // SAFETY: it is live and has that length; no owner names it, and only this thread frees it.
        let found = unsafe { world.owned().read_owned(key, at, 500) };
        assert_eq!(found.unwrap(), bytes(content, 500));
        // SAFETY: same as above.
        let wrong = unsafe { world.owned().read_owned(key + 1, at, 500) };
        assert_eq!(wrong.unwrap_err(), HandleError::Stale);
        // SAFETY: same as above.
        unsafe { world.owned().free_owned(at, 500) }.unwrap();
    }
    world.check(0);
}

#[test]
#[should_panic(expected = "key 2147483648")]
fn a_key_that_no_header_has_room_for_is_refused() {
    let world = World::new(&options(PageSize::KIB4), 1);
    let _ = world.owned().insert_owned(KEYS_MAX as u32, b"object");
}

/// Four threads replace, read and drop objects of the same keys and free others by handles, while
/// two compact all the time.
#[test]
fn objects_keep_their_bytes_while_several_threads_compact() {
    for locking in Locking::of(Allocator::Fit) {
        let mut options = options(PageSize::KIB4).with_locking(*locking);
        options.rules.contexts = zfold_pool::Contexts::Concurrent;
        options.cpus = Some(4);
        let world = World::new(&options, 500);
        let work = |thread: u32| {
            let mut random = Random::new(thread.into());
            for _ in 0..20_000 {
                let (key, len) = (random.below(500) as u32, 1 + random.index(2000));
                match random.below(16) {
                    0..=6 => world.store(key, len),
                    7..=10 => world.load(key),
                    11..=13 => world.drop(key),
                    _ => {
                        let handle = world.pool.insert(&bytes(key, len)).unwrap();
                        assert_eq!(*world.pool.read(handle).unwrap(), *bytes(key, len));
                        world.pool.free(handle).unwrap();
                    }
                }
            }
        };
        let compact = || _ = world.compact(&AtomicBool::new(false));
        beside(compact, || beside(compact, || at_once(0..4, work)));
        assert!(world.pool.stats().objects_moved_total > 0);
        world.check(0);
        (0..500).for_each(|key| world.drop(key));
        world.check(0);
    }
}
