//! The options of a far backing: public fields with defaults.

use std::io;
use std::time::Duration;

use zfold_store::backing::MAX_ALIGN;
use zfold_store::pool::builders;

use crate::map::UNIT;

/// The most bytes that a backing can have: places in the log are 32 bits of units.
const LEN_MAX: u64 = (u32::MAX as u64) * UNIT as u64;

/// The options of a [`FarBacking`](crate::FarBacking). Start from [`FarOptions::new`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FarOptions {
    /// Bytes that the store may place: an address space, which takes memory only where it is in
    /// use. Rounded down to a multiple of 4096; at most 2 TiB.
    pub len: u64,
    /// How long a read or a write may take, with all its attempts.
    pub deadline: Duration,
    /// How often an engine is asked for the same thing, at least once.
    pub attempts: u32,
    /// How long to wait before the second attempt; each further wait is twice as long.
    pub backoff: Duration,
    /// How long after a failed write the engine is tried again; each further wait is twice as
    /// long, up to [`probe_max`](Self::probe_max). No write is sent meanwhile.
    pub probe: Duration,
    /// The longest wait between two tries of an absent engine.
    pub probe_max: Duration,
    /// How often the expiry of objects at the engine is moved on.
    pub renew: Duration,
    /// How often the cleaner looks for work if it is not woken.
    pub tend: Duration,
}

impl FarOptions {
    /// Returns the defaults for `len` bytes: 5 s for a read or a write, three attempts 20 ms apart,
    /// an absent engine tried after 200 ms and up to 10 s, renewed every quarter of an hour,
    /// cleaned each second.
    #[must_use]
    pub fn new(len: u64) -> Self {
        Self {
            len,
            deadline: Duration::from_secs(5),
            attempts: 3,
            backoff: Duration::from_millis(20),
            probe: Duration::from_millis(200),
            probe_max: Duration::from_secs(10),
            renew: Duration::from_secs(900),
            tend: Duration::from_secs(1),
        }
    }

    builders! {
        with_deadline => deadline: Duration,
        with_attempts => attempts: u32,
        with_backoff => backoff: Duration,
        with_probe => probe: Duration,
        with_probe_max => probe_max: Duration,
        with_renew => renew: Duration,
        with_tend => tend: Duration,
    }

    /// Returns the options with a length that is whole, or why they make no backing.
    pub(crate) fn checked(mut self) -> io::Result<Self> {
        self.len = self.len / MAX_ALIGN as u64 * MAX_ALIGN as u64;
        let wrong = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        if self.len == 0 || self.len > LEN_MAX {
            return wrong("a far backing has 4096 bytes at least and less than 2 TiB");
        }
        if self.attempts == 0 || self.deadline.is_zero() {
            return wrong("a far backing asks at least once, and waits for an answer");
        }
        Ok(self)
    }
}
