//! Limits how fast bytes are sent: in turns, each of which lasts as long as its bytes take at the
//! rate.
//!
//! - T1: between the beginnings of two turns, no more bytes are sent than the rate allows for that
//!   time. Time that was not used earlier is gone: nothing is saved up for a burst.
//!
//! The lock is a leaf; no thread waits under it.

use std::time::{Duration, Instant};

use zfold_store::pool::Lock;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Pace {
    /// None: as fast as can be.
    bytes_per_second: Option<u64>,
    /// When the last turn ends.
    end: Lock<Option<Instant>>,
}

impl Pace {
    pub(crate) fn new(bytes_per_second: Option<u64>) -> Self {
        Self { bytes_per_second, end: Lock::new(None) }
    }

    /// Returns how long to wait at `now` before `bytes` are sent, and takes that turn.
    pub(crate) fn turn(&self, bytes: usize, now: Instant) -> Duration {
        let Some(rate) = self.bytes_per_second else { return Duration::ZERO };
        let mut end = self.end.lock();
        let begin = end.map_or(now, |end| end.max(now));
        *end = Some(begin + Duration::from_secs_f64(bytes as f64 / rate as f64));
        begin - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_follow_each_other_at_the_rate_and_save_nothing_up() {
        let (pace, start) = (Pace::new(Some(1000)), Instant::now());
        let ms = Duration::from_millis;
        assert_eq!(pace.turn(500, start), ms(0));
        assert_eq!(pace.turn(100, start), ms(500));
        assert_eq!(pace.turn(100, start + ms(50)), ms(550));
        assert_eq!(pace.turn(300, start + ms(9000)), ms(0), "the line was empty");
        assert_eq!(pace.turn(1, start + ms(9000)), ms(300));
        assert_eq!(Pace::new(None).turn(1 << 30, start), ms(0));
    }
}
