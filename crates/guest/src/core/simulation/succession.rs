//! Servers of the simulation that are killed, and those that take over.
//!
//! The bits are atomics since those of a journal are; one thread has them.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Kernel, PAGES, Twin, Words, regions};
use crate::core::fault::Next;
use crate::core::guest::Guest;
use crate::core::table::{Bits, words_of};

/// How a server ends that is killed.
pub(super) struct Killed;

/// Bits that outlive servers.
#[derive(Clone, Debug)]
pub(super) struct Kept(Arc<Vec<AtomicU64>>);

impl Kept {
    pub(super) fn new() -> Self {
        Self::of(PAGES as u64)
    }

    /// Returns the bits of so many units.
    pub(super) fn of(units: u64) -> Self {
        Self(Arc::new((0..words_of(units)).map(|_| AtomicU64::new(0)).collect()))
    }

    /// Returns bits of their own that say the same.
    fn copy(&self) -> Self {
        let word = |word: &AtomicU64| AtomicU64::new(word.load(Ordering::Relaxed));
        Self(Arc::new(self.0.iter().map(word).collect()))
    }
}

impl Bits for Kept {
    fn words(&self) -> &[AtomicU64] {
        &self.0
    }
}

/// A server: none while nobody has taken over.
pub(super) struct Server {
    pub(super) guest: Option<Guest>,
    pub(super) bits: Kept,
    /// Bits of a while ago.
    old: Kept,
    pub(super) next: Next,
}

impl Server {
    pub(super) fn new(bits: Kept) -> Self {
        let old = bits.copy();
        Self { guest: Some(guest(bits.clone())), bits, old, next: Next::Now }
    }

    /// Takes a step, which may be its last; or another one takes over when it is time.
    pub(super) fn step(&mut self, kernel: &mut Kernel, image: &Words, turn: u64) {
        if let Some(guest) = &mut self.guest {
            let step = AssertUnwindSafe(|| guest.step(kernel, image, turn));
            match catch_unwind(step) {
                Ok(next) => self.next = next,
                Err(killed) if killed.is::<Killed>() => {
                    kernel.heir_at = Some(turn + kernel.random.below(30));
                    self.guest = None;
                }
                Err(other) => resume_unwind(other),
            }
            if turn.is_multiple_of(16) {
                self.old = self.bits.copy();
            }
        } else if kernel.heir_at.is_some_and(|at| at <= turn) {
            if kernel.twin == Twin::OldBits {
                self.bits = self.old.copy();
            }
            let mut heir = guest(self.bits.clone());
            let journal = match kernel.twin {
                Twin::Unread => Vec::new(),
                _ => std::mem::take(&mut kernel.journal),
            };
            heir.take_over(journal.into_iter(), kernel);
            kernel.heir_at = None;
            (self.guest, self.next) = (Some(heir), Next::Now);
        }
        // What the one before has begun ends at some time.
        if self.guest.is_some()
            && kernel.random.below(8) == 0
            && let Some((to, words)) = kernel.under_way.take()
        {
            // Whatever becomes of it, nobody hears of it.
            let _ = kernel.fill(to, &words);
        }
    }
}

/// Returns a guest with these bits.
pub(super) fn guest(bits: Kept) -> Guest {
    Guest::new(regions(), Box::new(bits))
}
