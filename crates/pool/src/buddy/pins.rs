//! The set of objects that are being read.
//!
//! There are about as many pins as threads, so a short list searched from its end is the fastest
//! set there is. It is guarded by the pool's lock.

use crate::handle::Handle;

/// Pinned handles, each as often as it is pinned.
#[derive(Debug, Default)]
pub(crate) struct Pins(Vec<Handle>);

impl Pins {
    /// Pins an object once more.
    #[inline]
    pub(crate) fn add(&mut self, handle: Handle) {
        self.0.push(handle);
    }

    /// Takes one pin of an object back.
    ///
    /// # Panics
    /// If it has none.
    #[inline]
    pub(crate) fn remove(&mut self, handle: Handle) {
        let at = self.0.iter().rposition(|&pinned| pinned == handle);
        self.0.swap_remove(at.expect("a guard's object is pinned"));
    }

    /// Returns whether an object is pinned.
    #[inline]
    pub(crate) fn contains(&self, handle: Handle) -> bool {
        self.0.contains(&handle)
    }
}
