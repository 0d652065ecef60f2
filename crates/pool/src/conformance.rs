//! The contract of [`Pool`] as checks that every pool must pass, and a model that any sequence of
//! operations can be held against.
//!
//! The model is a list of (handle, bytes); it is slow and obviously right. Tests, property tests
//! and fuzz targets all drive pools through it, and so can the author of another lock design or
//! page source.
//!
//! # Examples
//! ```
//! use zfold_pool::conformance::{Model, Op};
//! use zfold_pool::{Allocator, PoolOptions};
//!
//! let pool = zfold_pool::create("checked", &PoolOptions::new(Allocator::Z3fold))?;
//! let mut model = Model::new(&*pool);
//! for op in Op::random(1, pool.len_max()).take(1000) {
//!     model.apply(&op);
//! }
//! model.finish();
//! # Ok::<(), zfold_pool::ConfigError>(())
//! ```

use std::collections::VecDeque;

use crate::handle::Handle;
use crate::pool::{AllocError, HandleError, Pool, ReclaimError, Refused};
use crate::units::PageCount;

/// Objects that a model keeps alive at most; an allocation beyond that frees one first.
const LIVE_MAX: usize = 1500;

/// Freed handles that a model remembers.
const STALE_MAX: usize = 5000;

/// An operation on a pool. `pick` chooses an object, modulo how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Op {
    /// Allocates, then writes all bytes.
    Alloc {
        /// Length in bytes; may be out of range.
        len: usize,
    },
    /// Allocates and writes in one call.
    Insert {
        /// Length in bytes; may be out of range.
        len: usize,
    },
    /// Overwrites the beginning of an object.
    Write {
        /// Which object.
        pick: usize,
        /// Bytes to write; more than the object has must be refused.
        len: usize,
    },
    /// Reads an object and compares.
    Read {
        /// Which object.
        pick: usize,
    },
    /// Frees an object.
    Free {
        /// Which object.
        pick: usize,
    },
    /// Uses a handle that was freed, in every call that takes one.
    UseStale {
        /// Which handle.
        pick: usize,
    },
    /// Pins an object, tries to write, free and move it, and unpins it.
    Pin {
        /// Which object.
        pick: usize,
    },
    /// Compacts.
    Compact {
        /// Pages asked for.
        pages: u64,
    },
    /// Reclaims, with a hook that refuses every third object.
    Reclaim {
        /// Pages asked for.
        pages: u64,
    },
}

impl Op {
    /// Returns the operation that a random word and a length bound stand for.
    #[must_use]
    pub fn from_word(word: u64, len_max: usize) -> Self {
        let pick = (word >> 32) as usize;
        // One length in eight from the whole range (and beyond), the others as pages compress.
        let len = match word >> 8 & 7 {
            0 => (word >> 16) as usize % (len_max + 2),
            n => (word >> 16) as usize % (len_max / 8 * n as usize) + 1,
        };
        match word & 63 {
            0..=11 => Self::Alloc { len },
            12..=23 => Self::Insert { len },
            24..=29 => Self::Write { pick, len },
            30..=39 => Self::Read { pick },
            40..=59 => Self::Free { pick },
            60 => Self::UseStale { pick },
            61 => Self::Pin { pick },
            62 => Self::Compact { pages: word >> 8 & 15 },
            _ => Self::Reclaim { pages: (word >> 8 & 3) + 1 },
        }
    }

    /// Returns an endless sequence of operations that depends on `seed` alone.
    pub fn random(seed: u64, len_max: usize) -> impl Iterator<Item = Self> {
        words(seed).map(move |word| Self::from_word(word, len_max))
    }
}

/// An endless sequence of mixed words (SplitMix64).
fn words(seed: u64) -> impl Iterator<Item = u64> {
    (1..).map(move |n: u64| {
        let word = seed.wrapping_add(n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ word >> 31
    })
}

/// What a pool should hold.
#[derive(Debug)]
pub struct Model<'a> {
    pool: &'a dyn Pool,
    live: Vec<(Handle, Vec<u8>)>,
    stale: VecDeque<Handle>,
    contents: u64,
}

impl<'a> Model<'a> {
    /// Returns the model of `pool`, of which it will be the only user of the objects it makes.
    #[must_use]
    pub fn new(pool: &'a dyn Pool) -> Self {
        Self { pool, live: Vec::new(), stale: VecDeque::new(), contents: 0 }
    }

    /// Returns the number of live objects.
    #[must_use]
    pub fn live(&self) -> usize {
        self.live.len()
    }

    /// Does `op` in pool and model.
    ///
    /// # Panics
    /// If the pool does not behave as the contract says. Running out of memory is allowed.
    pub fn apply(&mut self, op: &Op) {
        match *op {
            Op::Alloc { len } => self.alloc(len, false),
            Op::Insert { len } => self.alloc(len, true),
            Op::UseStale { pick } => self.use_stale(pick),
            Op::Compact { pages } => {
                self.pool.compact(pages);
            }
            Op::Reclaim { pages } => self.reclaim(pages),
            _ if self.live.is_empty() => {}
            Op::Write { pick, len } => self.write(pick % self.live.len(), len),
            Op::Read { pick } => self.read(pick % self.live.len()),
            Op::Free { pick } => self.free(pick % self.live.len()),
            Op::Pin { pick } => self.pin(pick % self.live.len()),
        }
    }

    /// Checks every object, frees it, and checks that the pool is empty of this model's objects.
    ///
    /// # Panics
    /// If the pool does not behave as the contract says.
    pub fn finish(mut self) {
        self.pool.check();
        (0..self.live.len()).for_each(|at| self.read(at));
        while !self.live.is_empty() {
            self.free(0);
        }
        self.pool.check();
        (0..self.stale.len()).for_each(|at| self.use_stale(at));
    }

    fn fresh_bytes(&mut self, len: usize) -> Vec<u8> {
        self.contents += 1;
        let words = words(self.contents).take(len.div_ceil(8));
        let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        bytes.truncate(len);
        bytes
    }

    fn alloc(&mut self, len: usize, at_once: bool) {
        if self.live.len() >= LIVE_MAX {
            self.free(self.contents as usize % LIVE_MAX);
        }
        let bytes = self.fresh_bytes(len);
        let allocated = match at_once {
            true => self.pool.insert(&bytes),
            false => self.pool.alloc(len),
        };
        let max = self.pool.len_max();
        match allocated {
            Ok(handle) => {
                assert!((1..=max).contains(&len), "{len} bytes were allocated");
                assert!(self.live.iter().all(|(other, _)| *other != handle), "handle given twice");
                if !at_once {
                    self.pool.write(handle, &bytes).expect("a new object can be written");
                }
                self.live.push((handle, bytes));
            }
            Err(AllocError::ZeroLength) => assert_eq!(len, 0),
            Err(AllocError::TooLong { len: refused, max: said }) => {
                assert!(refused == len && len > max && said == max, "{len} of {max}");
            }
            Err(AllocError::NoMemory(_)) => {}
            Err(error) => panic!("alloc of {len}: {error}"),
        }
    }

    fn write(&mut self, at: usize, len: usize) {
        let bytes = self.fresh_bytes(len);
        let (handle, held) = &mut self.live[at];
        match self.pool.write(*handle, &bytes) {
            Ok(()) => held[..len].copy_from_slice(&bytes),
            Err(error) => {
                assert_eq!(error, HandleError::TooLong { len, max: held.len() });
                assert!(len > held.len());
            }
        }
    }

    fn read(&self, at: usize) {
        let (handle, bytes) = &self.live[at];
        let read = self.pool.read(*handle).expect("a live object can be read");
        assert!(*read == bytes[..], "{handle:?} has other bytes than were written");
    }

    fn free(&mut self, at: usize) {
        self.read(at);
        let (handle, _) = self.live.swap_remove(at);
        self.pool.free(handle).expect("a live object can be freed");
        self.remember(handle);
    }

    fn remember(&mut self, handle: Handle) {
        if self.stale.len() == STALE_MAX {
            self.stale.pop_front();
        }
        self.stale.push_back(handle);
    }

    fn use_stale(&self, pick: usize) {
        let Some(&handle) = self.stale.get(pick % self.stale.len().max(1)) else {
            return;
        };
        assert_eq!(self.pool.read(handle).err(), Some(HandleError::Stale), "read {handle:?}");
        assert_eq!(self.pool.write(handle, &[1]), Err(HandleError::Stale), "write {handle:?}");
        assert_eq!(self.pool.free(handle), Err(HandleError::Stale), "free {handle:?}");
    }

    fn pin(&self, at: usize) {
        let (handle, bytes) = &self.live[at];
        let read = self.pool.read(*handle).expect("a live object can be read");
        assert_eq!(self.pool.write(*handle, &[]), Err(HandleError::Busy));
        assert_eq!(self.pool.free(*handle), Err(HandleError::Busy));
        self.pool.compact(u64::MAX);
        assert!(*read == bytes[..], "a pinned object changed");
        let again = self.pool.read(*handle).expect("still live");
        assert_eq!(again.as_ptr(), read.as_ptr(), "a pinned object moved");
    }

    fn reclaim(&mut self, pages: u64) {
        let (pool, live) = (self.pool, &mut self.live);
        let (mut gone, mut seen) = (Vec::new(), 0);
        let result = pool.reclaim(PageCount(pages), &mut |handle| {
            seen += 1;
            let at = live.iter().position(|(held, _)| *held == handle);
            let Some(at) = at.filter(|_| seen % 3 != 0) else {
                return Err(Refused);
            };
            assert!(*pool.read(handle).expect("reclaimed objects are live") == live[at].1[..]);
            pool.free(handle).expect("a reclaimed object can be freed");
            live.swap_remove(at);
            gone.push(handle);
            Ok(())
        });
        match result {
            Ok(freed) => assert!(freed.0 >= pages),
            Err(ReclaimError::Disabled) => assert!(gone.is_empty()),
            Err(ReclaimError::Empty | ReclaimError::Refused) => {}
            Err(error) => panic!("reclaim: {error}"),
        }
        gone.into_iter().for_each(|handle| self.remember(handle));
    }
}

/// A check of one sentence of the contract, for a maker of empty pools.
pub type Check = fn(&dyn Fn() -> Box<dyn Pool>);

/// All checks, with the sentence each one stands for.
pub const CHECKS: &[(&str, Check)] = &[
    ("an object keeps its bytes until it is freed", objects_keep_their_bytes),
    ("objects of every length come back exactly", every_length_comes_back),
    ("length 0 and more than the longest are refused", wrong_lengths_are_refused),
    ("stale handles are refused", stale_handles_are_refused),
    ("handles of another pool are refused", foreign_handles_are_refused),
    ("made-up handles are refused", made_up_handles_are_refused),
    ("an object that is read cannot be written or freed", readers_exclude_writers),
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
    assert_eq!(pool.alloc(0), Err(AllocError::ZeroLength));
    assert_eq!(pool.insert(&[]), Err(AllocError::ZeroLength));
    for len in [max + 1, usize::MAX] {
        assert_eq!(pool.alloc(len), Err(AllocError::TooLong { len, max }));
    }
    assert_eq!(pool.stats().objects, 0);
    assert!(pool.alloc(max).is_ok());
}

fn stale_handles_are_refused(make: &dyn Fn() -> Box<dyn Pool>) {
    let pool = make();
    let mut model = Model::new(&*pool);
    for op in Op::random(9, pool.len_max()).take(3000) {
        model.apply(&op);
        (0..3).for_each(|pick| model.use_stale(pick));
    }
    model.finish();
}

fn foreign_handles_are_refused(make: &dyn Fn() -> Box<dyn Pool>) {
    let (pool, other) = (make(), make());
    for _ in 0..500 {
        let (own, foreign) = (pool.insert(b"own").unwrap(), other.insert(b"foreign").unwrap());
        assert_eq!(pool.free(foreign), Err(HandleError::Stale));
        assert_eq!(other.read(own).err(), Some(HandleError::Stale));
    }
    assert_eq!((pool.stats().objects, other.stats().objects), (500, 500));
}

fn made_up_handles_are_refused(make: &dyn Fn() -> Box<dyn Pool>) {
    let pool = make();
    let held: Vec<_> = (0..100).map(|_| pool.insert(b"held").unwrap()).collect();
    for word in words(3).take(20_000) {
        let handle = Handle::from_bits((word | 1).try_into().expect("odd"));
        assert_eq!(pool.free(handle), Err(HandleError::Stale), "{handle:?}");
        // Near a live one: another place with its serial, and its place with another serial.
        let near = held[word as usize % held.len()].to_bits();
        for bits in [near | 1 << 31, near | 1 << 63] {
            if bits != near {
                assert_eq!(pool.free(Handle::from_bits(bits)), Err(HandleError::Stale));
            }
        }
    }
    pool.check();
    assert_eq!(pool.stats().objects, 100);
}

fn readers_exclude_writers(make: &dyn Fn() -> Box<dyn Pool>) {
    let pool = make();
    let (read, free) = (pool.insert(b"being read").unwrap(), pool.insert(b"not").unwrap());
    let (first, second) = (pool.read(read).unwrap(), pool.read(read).unwrap());
    assert_eq!(pool.free(read), Err(HandleError::Busy));
    assert_eq!(pool.free(free), Ok(()), "other objects are not affected");
    drop(first);
    assert_eq!(pool.write(read, b"x"), Err(HandleError::Busy), "one reader is left");
    drop(second);
    assert_eq!(pool.write(read, b"x"), Ok(()));
    assert_eq!(pool.free(read), Ok(()));
}

fn an_emptied_pool_holds_no_page(make: &dyn Fn() -> Box<dyn Pool>) {
    let pool = make();
    let idle = pool.held_bytes();
    let lens = || words(4).map(|word| word as usize % pool.len_max() + 1).take(2000);
    let held: Vec<_> = lens().map_while(|len| pool.alloc(len).ok()).collect();
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
    let held = lens.map(|len| pool.alloc(len).unwrap());
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
