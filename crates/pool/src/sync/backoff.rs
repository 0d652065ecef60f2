//! How a thread waits for another that will be done in tens of nanoseconds: it looks again and
//! again, then offers its processor to others, among whom that thread may be.

use crate::sync::yield_now;

/// Times that a waiting thread looks before it yields its processor.
const SPINS: u32 = if cfg!(loom) { 0 } else { 100 };

/// A wait that is under way.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    spins: u32,
}

impl Backoff {
    /// Waits a moment, before the caller looks again.
    #[inline]
    pub(crate) fn pause(&mut self) {
        if self.spins < SPINS {
            std::hint::spin_loop();
        } else {
            yield_now();
        }
        self.spins += 1;
    }
}
