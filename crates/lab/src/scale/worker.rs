//! A thread with objects of its own, which does rounds: it frees one of them, inserts another and
//! reads a third, whose bytes it compares: three operations.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use zfold_compare::rng::SplitMix64;
use zfold_pool::{Handle, Pool};

use super::given::NAME;
use super::objects::Objects;
use crate::experiment::Error;

/// Operations of a round.
pub(super) const OPERATIONS: f64 = 3.0;
/// Objects of each worker.
pub(super) const LIVE: usize = 2000;

/// A thread with objects of its own in a pool that it may share.
pub(super) struct Worker<'a> {
    pool: &'a dyn Pool,
    blobs: &'a [Vec<u8>],
    /// Handle and index of the blob of each object.
    live: Vec<(Handle, usize)>,
    rng: SplitMix64,
    pub(super) rounds: u64,
}

impl<'a> Worker<'a> {
    pub(super) fn new(pool: &'a dyn Pool, objects: &'a Objects, seed: u64) -> Result<Self, Error> {
        let (live, rng) = (Vec::with_capacity(LIVE), SplitMix64::new(seed));
        let mut worker = Self { pool, blobs: &objects.blobs, live, rng, rounds: 0 };
        (0..LIVE).try_for_each(|_| worker.insert())?;
        Ok(worker)
    }

    pub(super) fn any(&mut self) -> usize {
        self.rng.below(self.live.len() as u64) as usize
    }

    pub(super) fn free(&mut self) -> Result<(), Error> {
        let object = self.any();
        let (handle, _) = self.live.swap_remove(object);
        Ok(self.pool.free(handle)?)
    }

    pub(super) fn insert(&mut self) -> Result<(), Error> {
        let blob = self.rng.below(self.blobs.len() as u64) as usize;
        self.live.push((self.pool.insert(&self.blobs[blob])?, blob));
        Ok(())
    }

    pub(super) fn read(&mut self) -> Result<(), Error> {
        let object = self.any();
        let (handle, blob) = self.live[object];
        if *self.pool.read(handle)? == *self.blobs[blob] {
            return Ok(());
        }
        let what = format!("an object of pool {}", self.pool.name());
        Err(Error::WrongBytes { experiment: NAME, what })
    }

    pub(super) fn round(&mut self) -> Result<f64, Error> {
        self.rounds += 1;
        self.free()?;
        self.insert()?;
        self.read()?;
        Ok(0.0)
    }

    /// Does a round in which every call waits for its turn; returns the time of the calls alone.
    pub(super) fn round_in_turns(
        &mut self,
        turns: &AtomicUsize,
        me: usize,
        workers: usize,
        stop: &AtomicBool,
    ) -> Result<f64, Error> {
        self.rounds += 1;
        let mut nanoseconds = 0.0;
        for call in [Self::free, Self::insert, Self::read] {
            wait_for_turn(turns, me, stop);
            let start = Instant::now();
            call(self)?;
            nanoseconds += start.elapsed().as_nanos() as f64;
            turns.store((me + 1) % workers, Ordering::Release);
        }
        Ok(nanoseconds)
    }
}

/// Waits until `turn` is `me`, or it is time to stop.
pub(super) fn wait_for_turn(turn: &AtomicUsize, me: usize, stop: &AtomicBool) {
    // Acquire pairs with the Release of the store that passes the turn on.
    while turn.load(Ordering::Acquire) != me && !stop.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}
