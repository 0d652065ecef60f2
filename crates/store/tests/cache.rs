//! Properties of the cache, against a model:
//! - any sequence of operations reads what was inserted last, and what is missing is always what
//!   was used longest ago;
//! - what is held is within the limit after each operation;
//! - threads that share all keys read whole values of the key they asked for, and nothing leaks;
//! - of threads that take or insert the same value, one does.

use std::collections::VecDeque;
use std::sync::Barrier;

use proptest::collection::vec;
use proptest::prelude::*;
use zfold_store::pool::{Allocator, PoolOptions};
use zfold_store::{Cache, CacheError, CacheOptions, CodecKind};
use zfold_testing::Random;
use zfold_testing::wait::at_once;

const MIB: u64 = 1 << 20;

/// A value that tells its key, of which about half the bytes compress.
fn value(key: u16, version: u32, len: usize) -> Vec<u8> {
    let mut value = vec![key as u8; len];
    let mut random = Random::new(u64::from(key) << 32 | u64::from(version));
    value.chunks_mut(64).step_by(2).for_each(|part| random.fill(part));
    value
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u16, usize),
    Get(u16),
    GetOrInsert(u16, usize),
    Remove(u16),
    Take(u16),
    TakeOldest,
    Contains(u16),
    /// To so many KiB.
    Resize(u64),
    Clear,
}

fn op() -> impl Strategy<Value = Op> {
    let key = 0..200u16;
    let len = prop_oneof![
        4 => 0..300usize,
        4 => 0..9000usize,
        2 => prop::sample::select(vec![4095, 4096, 4097, 8192, 100_000, 400_000]),
    ];
    prop_oneof![
        12 => (key.clone(), len.clone()).prop_map(|(key, len)| Op::Insert(key, len)),
        6 => (key.clone(), len).prop_map(|(key, len)| Op::GetOrInsert(key, len)),
        6 => key.clone().prop_map(Op::Get),
        2 => key.clone().prop_map(Op::Remove),
        2 => key.clone().prop_map(Op::Take),
        1 => Just(Op::TakeOldest),
        2 => key.prop_map(Op::Contains),
        1 => (1000..3000u64).prop_map(Op::Resize),
        1 => Just(Op::Clear),
    ]
}

/// What a cache may hold: keys and values, the least recently used first.
#[derive(Default)]
struct Model(VecDeque<(u16, Vec<u8>)>);

impl Model {
    fn take(&mut self, key: u16) -> Option<Vec<u8>> {
        let at = self.0.iter().position(|(found, _)| *found == key)?;
        self.0.remove(at).map(|(_, value)| value)
    }

    /// Drops from the front as many as the cache has dropped; what is left must be there, all of
    /// it.
    fn follow(&mut self, cache: &Cache) {
        let keys = cache.keys();
        self.0.drain(..self.0.len().saturating_sub(keys.len()));
        let left: Vec<Box<[u8]>> = self.0.iter().map(|(key, _)| key.to_le_bytes().into()).collect();
        assert_eq!(keys, left, "in the order of their last use");
        assert_eq!(cache.len(), left.len());
        let bytes: usize = self.0.iter().map(|(_, value)| value.len()).sum();
        assert_eq!(cache.stats().value_bytes, bytes as u64);
    }

    fn apply(&mut self, cache: &Cache, op: &Op, version: u32) {
        match *op {
            Op::Insert(key, len) => {
                let value = value(key, version, len);
                self.take(key);
                match cache.insert(&key.to_le_bytes(), &value) {
                    Ok(()) => self.0.push_back((key, value)),
                    Err(error) => assert!(matches!(error, CacheError::TooLarge { .. }), "{error}"),
                }
            }
            Op::Get(key) => {
                let found = cache.get(&key.to_le_bytes()).expect("sound");
                let wanted = self.take(key);
                assert!(found == wanted, "the value of {key}");
                self.0.extend(wanted.map(|value| (key, value)));
            }
            Op::GetOrInsert(key, len) => {
                let had = self.take(key);
                let value = value(key, version, len);
                match cache.get_or_insert(&key.to_le_bytes(), &value) {
                    Ok(found) => {
                        assert!(found == had, "the value of {key}");
                        self.0.push_back((key, found.unwrap_or(value)));
                    }
                    Err(error) => assert!(matches!(error, CacheError::TooLarge { .. }), "{error}"),
                }
            }
            Op::Take(key) => {
                assert!(cache.take(&key.to_le_bytes()) == Ok(self.take(key)), "the value of {key}");
            }
            Op::TakeOldest => {
                let oldest = self.0.pop_front();
                let wanted = oldest.map(|(key, value)| (key.to_le_bytes().into(), value));
                assert!(cache.take_oldest() == Ok(wanted));
            }
            Op::Remove(key) => {
                assert_eq!(cache.remove(&key.to_le_bytes()), self.take(key).is_some());
            }
            Op::Contains(key) => {
                let wanted = self.0.iter().any(|(found, _)| *found == key);
                assert_eq!(cache.contains(&key.to_le_bytes()), wanted);
            }
            Op::Resize(kib) => cache.resize(kib << 10),
            Op::Clear => {
                cache.clear();
                self.0.clear();
            }
        }
        assert!(cache.held_bytes() <= cache.limit_bytes(), "{op:?}: {:?}", cache.stats());
        self.follow(cache);
        cache.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 40, failure_persistence: None, ..ProptestConfig::default()
    })]
    #[test]
    fn any_sequence_keeps_what_was_used_last(ops in vec(op(), 1..250), number in 0..12usize) {
        let allocator = Allocator::ALL[number % 3];
        let codec = [CodecKind::Lz4, CodecKind::Zstd][number / 3 % 2];
        let options = CacheOptions::new(2 * MIB)
            .with_codec(codec)
            .with_pool(PoolOptions::new(allocator));
        let cache = Cache::open(&options).unwrap();
        let mut model = Model::default();
        for (version, op) in (0..).zip(&ops) {
            model.apply(&cache, op, version);
        }
    }
}

#[test]
fn small_values_do_not_cost_a_page() {
    let cache = Cache::open(&CacheOptions::new(64 * MIB)).unwrap();
    let before = cache.held_bytes();
    let count = 20_000_u32;
    for n in 0..count {
        cache.insert(&n.to_le_bytes(), &value(n as u16, n, 100)).unwrap();
    }
    let each = (cache.held_bytes() - before) / u64::from(count);
    assert!(each < 100 + 200, "{each} bytes for each value of 100");
    assert_eq!(cache.stats().values, count.into());
}

#[test]
fn a_value_beyond_the_limit_is_refused_and_leaves_nothing_behind() {
    let cache = Cache::open(&CacheOptions::new(MIB)).unwrap();
    cache.insert(b"big", b"small so far").unwrap();
    cache.insert(b"other", b"stays").unwrap();
    let big = value(1, 1, 32 << 20);
    let limit_bytes = MIB;
    assert_eq!(cache.insert(b"big", &big), Err(CacheError::TooLarge { limit_bytes }));
    assert!(!cache.contains(b"big"), "not even its old value");
    assert_eq!(cache.get(b"other").unwrap().as_deref(), Some(&b"stays"[..]));
    let stats = cache.stats();
    assert_eq!((stats.values, stats.refusals_total, stats.evictions_total), (1, 1, 0));
    // It is not made first: a program that is handed one much too long would run out of memory.
    let peak = stats.pool.pages_peak.bytes(stats.pool.page_size);
    assert!(peak < 2 * MIB, "{peak} bytes for a value that was refused: {stats:?}");
    cache.check();
}

/// Threads insert, read and remove the same few hundred keys under a limit that is hit all the
/// time. A value that is read is one that was inserted for its key, whole.
#[test]
fn threads_that_share_all_keys_read_whole_values() {
    let cache = Cache::open(&CacheOptions::new(MIB)).unwrap();
    let found = at_once(0..4, |thread| {
        let (mut random, mut found) = (Random::new(thread), 0);
        let mut buffer = Vec::new();
        for _ in 0..6000 {
            let (key, version) = (random.below(600) as u16, random.below(8) as u32);
            match random.below(16) {
                0..7 => {
                    let value = value(key, version, version as usize * 1700);
                    cache.insert(&key.to_le_bytes(), &value).unwrap();
                }
                7 => _ = cache.remove(&key.to_le_bytes()),
                _ if cache.get_into(&key.to_le_bytes(), &mut buffer).unwrap() => {
                    let version = (buffer.len() / 1700) as u32;
                    assert!(buffer == value(key, version, buffer.len()), "{key}");
                    found += 1;
                }
                _ => {}
            }
        }
        found
    });
    let found: u32 = found.into_iter().sum();
    cache.check();
    let stats = cache.stats();
    assert!(found > 1000 && stats.evictions_total > 1000, "{found} found, {stats:?}");
    assert!(stats.held_bytes <= cache.limit_bytes(), "{stats:?}");
    assert!(stats.held_bytes > MIB * 3 / 4, "most of the limit is used: {stats:?}");
    cache.clear();
    assert_eq!(cache.stats().pool.objects, 0, "nothing leaks");
    assert!(cache.held_bytes() < MIB / 2, "{:?}", cache.stats());
}

/// All threads ask for the same key at once: one inserts, and the others get what it did; then one
/// takes it. Before they are gone again, all oldest values are taken, each once.
#[test]
fn one_thread_inserts_a_value_and_one_takes_it() {
    const THREADS: u8 = 4;
    let cache = Cache::open(&CacheOptions::new(4 * MIB)).unwrap();
    let together = Barrier::new(THREADS.into());
    let each = |thread| {
        let (mut seen, mut taken) = (Vec::new(), Vec::new());
        for round in 0..2000_u32 {
            let key = round.to_le_bytes();
            together.wait();
            seen.push(cache.get_or_insert(&key, &[thread; 300]).unwrap());
            together.wait();
            taken.extend(cache.take(&key).unwrap());
            together.wait();
            assert!(!cache.contains(&key));
            cache.insert(&[thread], &[thread]).unwrap();
            together.wait();
            let oldest = cache.take_oldest().unwrap();
            let (key, value) = oldest.expect("as many as threads");
            assert_eq!(&*key, value, "a key and its value");
            taken.push(value);
        }
        (seen, taken)
    };
    let (seen, taken): (Vec<_>, Vec<_>) = at_once(0..THREADS, each).into_iter().unzip();
    for round in 0..2000 {
        let of_round = || seen.iter().map(|seen| &seen[round]);
        assert_eq!(of_round().filter(|seen| seen.is_none()).count(), 1, "one of them inserts");
        let inserted = of_round().position(Option::is_none).expect("counted") as u8;
        assert!(of_round().flatten().all(|value| value == &[inserted; 300]), "and no other");
    }
    let count = |len| taken.iter().flatten().filter(|value| value.len() == len).count();
    assert_eq!((count(300), count(1)), (2000, 2000 * usize::from(THREADS)));
    assert!(cache.is_empty());
    cache.check();
}
