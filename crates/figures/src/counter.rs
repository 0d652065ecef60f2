//! The atomics of figures: plain atomics, so that a signal handler can count.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds this many.
    #[inline]
    pub fn add(&self, more: u64) {
        // Relaxed: a statistic, which guards nothing.
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Returns how many were counted.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The most that was seen.
#[derive(Debug, Default)]
pub struct Peak(AtomicU64);

impl Peak {
    /// Notes what is seen now.
    #[inline]
    pub fn raise(&self, to: u64) {
        // Relaxed, as above. Mostly it is no more than before, which takes no write.
        if to > self.0.load(Ordering::Relaxed) {
            self.0.fetch_max(to, Ordering::Relaxed);
        }
    }

    /// Returns the most that was seen.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Takes the place of an atomic where a figure is kept elsewhere, and is found when it is read.
#[derive(Debug, Default)]
pub struct Elsewhere;

impl Elsewhere {
    /// Returns zero: the reader knows better.
    #[must_use]
    pub fn get(&self) -> u64 {
        0
    }
}
