//! The handle cell: says where an object is, so that objects can move under their handles, and
//! who may touch it.
//!
//! ```text
//!   word:  63     62     61 .. 48   47 ... 40   39 .......... 12   11 ... 0
//!          | live | held | pins     | class     | zspage           | object |
//!   tag:   63 ............ 32   31 ............ 0
//!          | slack             | serial          |
//! ```
//!
//! `class` never changes while the object lives, so a free finds its class in the word, without a
//! lock (the idea of the kernel's zs_free series of 2026). `serial` is that of the handle;
//! `slack` is by how many bytes the object is shorter than its class allows.
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
//!   *held*, and read only by it and by those who have pinned it.
//! - H2: class, zspage, object and tag change only in *free*, *coming* and *held*: what was read
//!   from them while pinned or held stays true. (*Going*: the tag's serial becomes a link.)
//! - H3: *coming*, *going* and *free* are stale to every handle; *held* lasts only as long as a
//!   copy of at most a few objects takes, so others wait for it.
//! - H4: a thread that pins or holds looks at the serial again afterwards. A stale handle may
//!   thus pin an object of another handle for a moment, and the right owner's `free` be told
//!   `Busy` by that; it never reads or changes anything.
//!
//! Cost: 16 bytes an object, where the kernel has 8. For these a free looks at the cell and the
//! zspage's record only, both in small and dense tables; it never waits for the object's memory.

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

use crate::memory::slab::Record;
use crate::pool::HandleError;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::backoff::Backoff;

/// A field of a word: `bits` bits from `shift` up.
#[derive(Clone, Copy)]
struct Bits {
    shift: u32,
    bits: u32,
}

impl Bits {
    const fn above(self, bits: u32) -> Self {
        Self { shift: self.shift + self.bits, bits }
    }

    const fn mask(self) -> u64 {
        (1 << self.bits) - 1
    }

    #[inline]
    const fn get(self, word: u64) -> u64 {
        word >> self.shift & self.mask()
    }

    #[inline]
    fn pack(self, value: u64) -> u64 {
        debug_assert!(value <= self.mask());
        value << self.shift
    }
}

const OBJECT: Bits = Bits { shift: 0, bits: 12 };
const ZSPAGE: Bits = OBJECT.above(28);
const CLASS: Bits = ZSPAGE.above(8);
const PINS: Bits = CLASS.above(14);
const HELD: u64 = 1 << 62;
const LIVE: u64 = 1 << 63;

const ONE_PIN: u64 = 1 << PINS.shift;

const _: () = assert!(PINS.shift + PINS.bits == 62);

/// Most zspages of a pool.
pub(crate) const ZSPAGES_MAX: usize = 1 << ZSPAGE.bits;

/// Where an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) class: usize,
    pub(crate) zspage: u32,
    pub(crate) object: u32,
}

impl Place {
    #[inline]
    fn of(word: u64) -> Self {
        Self {
            class: CLASS.get(word) as usize,
            zspage: ZSPAGE.get(word) as u32,
            object: OBJECT.get(word) as u32,
        }
    }

    #[inline]
    fn pack(self) -> u64 {
        CLASS.pack(self.class as u64)
            | ZSPAGE.pack(self.zspage.into())
            | OBJECT.pack(self.object.into())
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Cell {
    word: AtomicU64,
    tag: AtomicU64,
}

impl Cell {
    /// Returns a free cell.
    #[cfg(all(test, loom))]
    pub(in crate::zsmalloc) fn new() -> Self {
        Self { word: AtomicU64::new(0), tag: AtomicU64::new(0) }
    }

    #[inline]
    fn has_serial(&self, serial: u32) -> bool {
        // Relaxed: decisive only after a pin or hold, whose Acquire has made the tag visible.
        self.tag.load(Ordering::Relaxed) as u32 == serial
    }

    /// Returns by how many bytes the object is shorter than its class allows. The caller has
    /// pinned or held it, or owns it in coming or going.
    #[inline]
    pub(crate) fn slack(&self) -> usize {
        (self.tag.load(Ordering::Relaxed) >> 32) as usize
    }

    /// Free to coming: a new object at `place`. The caller owns the free cell.
    #[inline]
    pub(crate) fn begin(&self, serial: u32, slack: usize, place: Place) {
        self.tag.store((slack as u64) << 32 | u64::from(serial), Ordering::Relaxed);
        // Relaxed: nobody acts on a coming cell; `publish` releases both words.
        self.word.store(HELD | place.pack(), Ordering::Relaxed);
    }

    /// Coming or held to live, at `place`: whoever pins or holds it next sees all that was
    /// written to the object.
    #[inline]
    pub(crate) fn publish(&self, place: Place) {
        // Release pairs with the Acquire in `pin` and `hold` (H1).
        self.word.store(LIVE | place.pack(), Ordering::Release);
    }

    /// Held to going: no handle names the object any more, its place is still taken. `next` is
    /// the link of a list of such cells.
    #[inline]
    pub(crate) fn retire(&self, next: u32) {
        let tag = self.tag.load(Ordering::Relaxed) & !u64::from(u32::MAX);
        self.tag.store(tag | u64::from(next), Ordering::Relaxed);
        // Relaxed: the place stays, and who gives it back is this thread or learns of it by the
        // remote-free list's own Release.
        let place = Place::of(self.word.load(Ordering::Relaxed));
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
    pub(crate) fn place(&self) -> Place {
        Place::of(self.word.load(Ordering::Relaxed))
    }

    /// Pins the object of `serial` once more; waits while it is held.
    ///
    /// # Errors
    /// `Stale`, or `Busy` if it is pinned 16,383 times.
    #[inline]
    pub(crate) fn pin(&self, serial: u32) -> Result<Place, HandleError> {
        let word =
            self.enter(serial, |word| (PINS.get(word) < PINS.mask()).then_some(word + ONE_PIN))?;
        if self.has_serial(serial) {
            return Ok(Place::of(word));
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

    /// Live to held, for a write or a free; waits while another thread holds it.
    ///
    /// # Errors
    /// `Stale`, or `Busy` if it is pinned.
    #[inline]
    pub(crate) fn hold(&self, serial: u32) -> Result<Place, HandleError> {
        let word = self.enter(serial, |word| (PINS.get(word) == 0).then_some(word | HELD))?;
        let place = Place::of(word);
        if self.has_serial(serial) {
            return Ok(place);
        }
        self.publish(place);
        Err(HandleError::Stale)
    }

    /// Live to held, if the object of `serial` is live at `place` now; does not wait.
    #[inline]
    pub(crate) fn try_hold(&self, serial: u32, place: Place) -> bool {
        let word = LIVE | place.pack();
        // Acquire pairs with the Releases of `publish` and `unpin` (H1).
        let held =
            self.word.compare_exchange(word, word | HELD, Ordering::Acquire, Ordering::Relaxed);
        if held.is_err() {
            return false;
        }
        let right = self.has_serial(serial);
        if !right {
            self.publish(place);
        }
        right
    }

    /// Changes the word of a live cell that nobody holds as `change` says; returns what it was.
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

    /// Returns the serial if the object is live and nobody holds it.
    pub(crate) fn live_serial(&self) -> Option<u32> {
        let word = self.word.load(Ordering::Acquire);
        let serial = self.tag.load(Ordering::Acquire) as u32;
        // The tag is the live object's if the word has not left that state meanwhile.
        let still = self.word.load(Ordering::Relaxed);
        let quiet = |word: u64| word & LIVE != 0 && word & HELD == 0;
        (quiet(word) && quiet(still) && Place::of(word) == Place::of(still)).then_some(serial)
    }
}

// SAFETY: two atomics: zeros are a free cell, no drop, alignment 8, 16 bytes.
unsafe impl Record for Cell {
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
