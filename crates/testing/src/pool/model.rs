//! Operations on a pool, and the model that they are held against.

use std::collections::VecDeque;
use std::num::NonZeroU64;

use zfold_pool::{AllocError, Handle, HandleError, PageCount, Pool, ReclaimError, Refused};

use super::forge::{forged, refused, words};

/// Objects that a model keeps alive at most; an allocation beyond that frees one first.
const LIVE_MAX: usize = 1500;

/// Freed handles that a model remembers.
const STALE_MAX: usize = 5000;

/// An operation on a pool. `pick` chooses an object, modulo how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Op {
    /// Makes an object.
    Insert {
        /// Length in bytes; may be out of range.
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
    /// Uses a number that is no live object's handle, in every call that takes one.
    Forge {
        /// Which object, freed or live, the number is near to.
        pick: usize,
        /// What is wrong with it.
        word: u64,
    },
    /// Pins an object, tries to free and move it, and unpins it.
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
            0..=23 => Self::Insert { len },
            24..=39 => Self::Read { pick },
            40..=58 => Self::Free { pick },
            59 => Self::Forge { pick, word: word >> 8 },
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
            Op::Insert { len } => self.insert(len),
            Op::UseStale { pick } => self.use_stale(pick),
            Op::Forge { pick, word } => self.use_forged(pick, word),
            Op::Compact { pages } => {
                self.pool.compact(pages);
            }
            Op::Reclaim { pages } => self.reclaim(pages),
            _ if self.live.is_empty() => {}
            Op::Read { pick } => self.read(pick % self.live.len()),
            Op::Free { pick } => self.free(pick % self.live.len()),
            Op::Pin { pick } => self.pin(pick % self.live.len()),
        }
    }

    /// Uses a handle of another pool, or a made-up one, in every call that takes one.
    ///
    /// # Panics
    /// If it is not refused, unless it is by chance that of an object of the model, too.
    pub fn use_foreign(&self, handle: Handle) {
        if self.live.iter().all(|(live, _)| *live != handle) {
            refused(self.pool, handle);
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

    fn insert(&mut self, len: usize) {
        if self.live.len() >= LIVE_MAX {
            self.free(self.contents as usize % LIVE_MAX);
        }
        let bytes = self.fresh_bytes(len);
        let max = self.pool.len_max();
        match self.pool.insert(&bytes) {
            Ok(handle) => {
                assert!((1..=max).contains(&len), "{len} bytes were allocated");
                assert!(self.live.iter().all(|(other, _)| *other != handle), "handle given twice");
                self.live.push((handle, bytes));
            }
            Err(AllocError::ZeroLength) => assert_eq!(len, 0),
            Err(AllocError::TooLong { len: refused, max: said }) => {
                assert!(refused == len && len > max && said == max, "{len} of {max}");
            }
            Err(AllocError::NoMemory(_)) => {}
            Err(error) => panic!("an object of {len}: {error}"),
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

    pub(super) fn use_stale(&self, pick: usize) {
        if let Some(&handle) = self.stale.get(pick % self.stale.len().max(1)) {
            refused(self.pool, handle);
        }
    }

    fn use_forged(&self, pick: usize, word: u64) {
        let known = self.live.len() + self.stale.len();
        let near = match pick % known.max(1) {
            at if at < self.live.len() => Some(self.live[at].0),
            at => self.stale.get(at - self.live.len()).copied(),
        };
        let forged = forged(near.map_or(0, |near| near.to_bits().get()), word);
        if let Some(forged) = NonZeroU64::new(forged) {
            self.use_foreign(Handle::from_bits(forged));
        }
    }

    fn pin(&self, at: usize) {
        let (handle, bytes) = &self.live[at];
        let read = self.pool.read(*handle).expect("a live object can be read");
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
