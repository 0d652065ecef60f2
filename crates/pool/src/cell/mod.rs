//! The handle cell: says where an object is, so that objects can move under their handles, and
//! which thread may touch it.
//!
//! ```text
//!   word:  63     62     61 .. 48   47 ............................... 0
//!          | live | held | pins     | spot: where the object is         |
//!   tag:   63 ............ 32   31 ............ 0
//!          | length            | serial          |
//! ```
//!
//! The contents of the spot are up to the allocator ([`Spot`]). `serial` is that of the handle,
//! `length` the object's in bytes.
//!
//! The word is also the object's lock. Its states:
//!
//! ```text
//!             begin              publish              pin / unpin
//!   free ------------> coming ------------> live <==================> pinned (1 .. 16383 times)
//!     ^                                     |  ^
//!     |                                hold |  | publish
//!     |           give                      v  |
//!     +--------------------- going <------- held
//!                                   retire
//! ```
//!
//! - H1: payload bytes are written only by the thread that has brought the cell to *coming* or
//!   *held*, and read only by it and by threads that have pinned it.
//! - H2: spot and tag change only in *free*, *coming* and *held*: what was read from them while
//!   pinned or held stays true. (*Going*: the tag's serial becomes a link.)
//! - H3: *coming*, *going* and *free* are stale to every handle; *held* lasts only as long as a
//!   copy of at most a few objects takes, so others wait for it.
//! - H4: a thread that pins or holds looks at the serial again afterwards. So a stale handle may
//!   pin an object of another handle for a moment, which makes the rightful owner's `free` return
//!   `Busy`; it never reads or changes anything.
//!
//! Cost: 16 bytes an object, where the kernel has 8. For these a free looks at the cell and small
//! and dense tables only; it never waits for the object's memory.

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

use std::fmt;
use std::marker::PhantomData;

use crate::memory::slab::Record;
use crate::pool::HandleError;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::backoff::Backoff;

/// A field of a word: `bits` bits from `shift` up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bits {
    shift: u32,
    bits: u32,
}

impl Bits {
    /// The lowest `bits` bits.
    pub(crate) const fn lowest(bits: u32) -> Self {
        Self { shift: 0, bits }
    }

    /// The next higher `bits` bits.
    pub(crate) const fn above(self, bits: u32) -> Self {
        Self { shift: self.shift + self.bits, bits }
    }

    /// The first bit above the field.
    pub(crate) const fn end(self) -> u32 {
        self.shift + self.bits
    }

    const fn mask(self) -> u64 {
        (1 << self.bits) - 1
    }

    /// Returns the field's value in `word`.
    #[inline]
    pub(crate) const fn get(self, word: u64) -> u64 {
        word >> self.shift & self.mask()
    }

    /// Returns `value` in the field's place.
    #[inline]
    pub(crate) fn pack(self, value: u64) -> u64 {
        debug_assert!(value <= self.mask());
        value << self.shift
    }
}

const SPOT: Bits = Bits::lowest(48);
const PINS: Bits = SPOT.above(14);
const HELD: u64 = 1 << 62;
const LIVE: u64 = 1 << 63;

const ONE_PIN: u64 = 1 << PINS.shift;

const _: () = assert!(PINS.end() == 62);

/// Where an object is, as its cell keeps it: in the lowest 48 bits of a word.
pub(crate) trait Spot: Copy + PartialEq + fmt::Debug {
    /// Returns the place as a number of at most 48 bits.
    fn pack(self) -> u64;

    /// Returns the place of which `word` has the number in its lowest 48 bits.
    fn unpack(word: u64) -> Self;
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Cell<S> {
    word: AtomicU64,
    tag: AtomicU64,
    spot: PhantomData<fn() -> S>,
}

impl<S: Spot> Cell<S> {
    /// Returns a free cell.
    #[cfg(test)]
    pub(crate) fn new() -> Self {
        Self { word: AtomicU64::new(0), tag: AtomicU64::new(0), spot: PhantomData }
    }

    #[inline]
    fn has_serial(&self, serial: u32) -> bool {
        // Relaxed: decisive only after a pin or hold, whose Acquire has made the tag visible.
        self.tag.load(Ordering::Relaxed) as u32 == serial
    }

    /// Returns the object's length in bytes. The caller has pinned or held it, or owns it in
    /// coming or going.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        (self.tag.load(Ordering::Relaxed) >> 32) as usize
    }

    /// Free to coming: a new object of `len` bytes at `place`. The caller owns the free cell.
    #[inline]
    pub(crate) fn begin(&self, serial: u32, len: usize, place: S) {
        self.tag.store((len as u64) << 32 | u64::from(serial), Ordering::Relaxed);
        // Relaxed: no other thread acts on a coming cell; `publish` releases both words.
        self.word.store(HELD | place.pack(), Ordering::Relaxed);
    }

    /// Coming or held to live, at `place`: the next thread that pins or holds it sees everything
    /// that was written to the object.
    #[inline]
    pub(crate) fn publish(&self, place: S) {
        // Release pairs with the Acquire in `pin` and `hold` (H1).
        self.word.store(LIVE | place.pack(), Ordering::Release);
    }

    /// Held to going: no handle names the object any longer, its place is still taken. `next` is
    /// the link of a list of such cells.
    #[inline]
    pub(crate) fn retire(&self, next: u32) {
        let tag = self.tag.load(Ordering::Relaxed) & !u64::from(u32::MAX);
        self.tag.store(tag | u64::from(next), Ordering::Relaxed);
        // Relaxed: the place stays, and it is freed by this thread or by one that learns of it
        // through the hand-over's own Release.
        let place = S::unpack(self.word.load(Ordering::Relaxed));
        self.word.store(HELD | place.pack(), Ordering::Relaxed);
    }

    /// Returns the link of a going cell, which the caller owns.
    #[inline]
    pub(crate) fn next_going(&self) -> u32 {
        self.tag.load(Ordering::Relaxed) as u32
    }

    /// Coming or going to free. The caller owns it.
    #[inline]
    pub(crate) fn clear(&self) {
        self.word.store(0, Ordering::Relaxed);
    }

    /// Returns the place in the word; true as long as the caller has pinned or held the object,
    /// owns the cell, or holds the lock of what the place is in.
    #[inline]
    pub(crate) fn place(&self) -> S {
        S::unpack(self.word.load(Ordering::Relaxed))
    }

    /// Pins the object of `serial` once more; waits while it is held.
    ///
    /// # Errors
    /// `Stale`, or `Busy` if it is pinned 16,383 times.
    #[inline]
    pub(crate) fn pin(&self, serial: u32) -> Result<S, HandleError> {
        let word =
            self.enter(serial, |word| (PINS.get(word) < PINS.mask()).then_some(word + ONE_PIN))?;
        if self.has_serial(serial) {
            return Ok(S::unpack(word));
        }
        self.unpin();
        Err(HandleError::Stale)
    }

    /// Takes one pin of the object back.
    #[inline]
    pub(crate) fn unpin(&self) {
        // Release pairs with the Acquire in `hold`: the reads under the pin come first (H1).
        let word = self.word.fetch_sub(ONE_PIN, Ordering::Release);
        debug_assert!(PINS.get(word) > 0);
    }

    /// Live to held, for a free; waits while another thread holds it.
    ///
    /// # Errors
    /// `Stale`, or `Busy` if it is pinned.
    #[inline]
    pub(crate) fn hold(&self, serial: u32) -> Result<S, HandleError> {
        let word = self.enter(serial, |word| (PINS.get(word) == 0).then_some(word | HELD))?;
        let place = S::unpack(word);
        if self.has_serial(serial) {
            return Ok(place);
        }
        self.publish(place);
        Err(HandleError::Stale)
    }

    /// Live to held, if the object of `serial` is live at `place` now; does not wait.
    #[inline]
    pub(crate) fn try_hold(&self, serial: u32, place: S) -> bool {
        let held = self.try_hold_at(place);
        let right = held && self.has_serial(serial);
        if held && !right {
            self.publish(place);
        }
        right
    }

    /// Live to held, if the cell's object is live at `place` now and not pinned; does not wait.
    #[inline]
    pub(crate) fn try_hold_at(&self, place: S) -> bool {
        let word = LIVE | place.pack();
        // Acquire pairs with the Releases of `publish` and `unpin` (H1).
        let held =
            self.word.compare_exchange(word, word | HELD, Ordering::Acquire, Ordering::Relaxed);
        held.is_ok()
    }

    /// Changes the word of a live cell that no thread holds by `change`; returns what it was.
    #[inline]
    fn enter(&self, serial: u32, change: impl Fn(u64) -> Option<u64>) -> Result<u64, HandleError> {
        let mut backoff = Backoff::default();
        loop {
            let word = self.word.load(Ordering::Acquire);
            if word & LIVE == 0 || !self.has_serial(serial) {
                return Err(HandleError::Stale);
            }
            if word & HELD != 0 {
                backoff.pause();
                continue;
            }
            let changed = change(word).ok_or(HandleError::Busy)?;
            // Acquire pairs with the Releases of `publish` and `unpin` (H1).
            let done = self.word.compare_exchange_weak(
                word,
                changed,
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            if done.is_ok() {
                return Ok(word);
            }
        }
    }

    /// Returns the serial if the object is live and no thread holds it.
    pub(crate) fn live_serial(&self) -> Option<u32> {
        let word = self.word.load(Ordering::Acquire);
        let serial = self.tag.load(Ordering::Acquire) as u32;
        // The tag is the live object's if the word has not left that state meanwhile.
        let still = self.word.load(Ordering::Relaxed);
        let quiet = |word: u64| word & LIVE != 0 && word & HELD == 0;
        (quiet(word) && quiet(still) && S::unpack(word) == S::unpack(still)).then_some(serial)
    }
}

// SAFETY: two atomics: zeros are a free cell, no drop, alignment 8, 16 bytes.
unsafe impl<S: Spot> Record for Cell<S> {
    fn next_free(&self) -> u32 {
        self.tag.load(Ordering::Relaxed) as u32
    }
    #[inline]
    fn set_free(&self, next: u32) {
        self.word.store(0, Ordering::Relaxed);
        self.tag.store(next.into(), Ordering::Relaxed);
    }
    /// Returns whether the cell is not free: whether it names a place that is taken.
    #[inline]
    fn is_live(&self) -> bool {
        self.word.load(Ordering::Relaxed) != 0
    }
}
