//! How a thread waits for another that will be done in tens of nanoseconds: it looks again and
//! again, then offers its processor to others, among whom that thread may be, and then sleeps: a
//! real-time thread that yields gives way to no thread of a lower priority, and would keep such a
//! holder from the processor for as long as it is permitted to run.

use std::time::Duration;

use crate::sync::yield_now;

/// Times that a waiting thread looks before it yields its processor.
const SPINS: u32 = if cfg!(loom) { 0 } else { 100 };
/// Times that it does that before it sleeps, and for how long.
const YIELDS: u32 = if cfg!(loom) { u32::MAX } else { 20 };
/// Same as above.
const SLEEP: Duration = Duration::from_micros(50);

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
        } else if self.spins < SPINS.saturating_add(YIELDS) {
            yield_now();
        } else {
            return std::thread::sleep(SLEEP);
        }
        self.spins += 1;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_long_wait_leaves_the_processor_to_every_thread() {
        let mut backoff = Backoff::default();
        (0..SPINS + YIELDS).for_each(|_| backoff.pause());
        let began = Instant::now();
        (0..10).for_each(|_| backoff.pause());
        assert!(began.elapsed() >= SLEEP * 10);
    }
}
