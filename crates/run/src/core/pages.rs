//! The state of each page in the closed ranges of an address space.
//!
//! ```text
//!   absent --- zeros ---> resident --- moved out ---> cached --- compressed ---> stored
//!     ^                    ^  | ^                       |        or its copy       |
//!     |                    |  | +------ filled in ------+--------------------------+
//!     +- missing - doomed <-- | discard
//!                    +--------+ still there
//! ```
//!
//! No state says that a thread is working on a page: a thread that fills it in or moves it out
//! holds the lock of its space.
//!
//! A page that came from the store may have a *copy* besides its state: the key under which the
//! store still has its old contents. Only a page that is resident, fixed or cached has one
//! (space/S7).
//!
//! Each page has a word of 32 bits: 3 bits of state, 29 bits of age, slot or key; and 16 bits of
//! history (`zfold_uffd::policy`). Both come in chunks for 2 MiB of address space; where all pages
//! are absent there is no chunk. Copies have words of their own, in chunks that have any.

pub(crate) mod parts;
pub(crate) mod told;
mod watching;

use std::collections::BTreeMap;
use std::ops::Bound;

use zfold_uffd::policy::watched::{Telling, Watched};
use zfold_uffd::policy::{Era, Past, Returns};

use self::told::{CHUNK, Told};
use super::ranges::{PageNo, Pages, common};

/// The slot of a page in the swap cache.
pub(crate) type SlotNo = u32;
/// The key of a page in the store.
pub(crate) type Key = u32;

/// The number of slots, and of keys, that a word can name.
pub(crate) const PAYLOADS: u32 = 1 << 29;

/// State of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Page {
    /// Missing in the address space and nowhere else: reads as zeros.
    Absent,
    /// In the address space; leaves when the hand has passed `age` times more, unless that says
    /// that its accesses are watched.
    Resident { age: u8 },
    /// In the address space, and the program has announced a discard of it: it is about to go, or
    /// has gone. It is not moved out until it is known to stay. `epoch` is the time of the
    /// announcement; see [`super::space::Space::outlived`].
    Doomed { epoch: u32 },
    /// In the swap cache.
    Cached(SlotNo),
    /// In the store.
    Stored(Key),
    /// In the address space and could not be moved (pinned, or its mapping is read-only); tried
    /// again when the hand has passed `rest` times more.
    Fixed { rest: u8 },
}

impl Page {
    /// Returns whether the page takes memory of the address space, as far as is known.
    pub(crate) fn is_present(self) -> bool {
        matches!(self, Self::Resident { .. } | Self::Doomed { .. } | Self::Fixed { .. })
    }

    /// Returns whether the page has left, and has to be brought back.
    pub(crate) fn is_away(self) -> bool {
        matches!(self, Self::Cached(_) | Self::Stored(_))
    }

    /// Returns whether a page of this state may have a copy.
    pub(crate) fn may_be_copied(self) -> bool {
        matches!(self, Self::Resident { .. } | Self::Fixed { .. } | Self::Cached(_))
    }

    fn word(self) -> u32 {
        let (state, payload) = match self {
            Self::Absent => (0, 0),
            Self::Resident { age } => (1, u32::from(age)),
            Self::Doomed { epoch } => (2, epoch % PAYLOADS),
            Self::Cached(slot) => (3, slot),
            Self::Stored(key) => (4, key),
            Self::Fixed { rest } => (5, u32::from(rest)),
        };
        debug_assert!(payload < PAYLOADS);
        state | payload << STATE_BITS
    }

    fn from_word(word: u32) -> Self {
        let payload = word >> STATE_BITS;
        match word & ((1 << STATE_BITS) - 1) {
            0 => Self::Absent,
            1 => Self::Resident { age: payload as u8 },
            2 => Self::Doomed { epoch: payload },
            3 => Self::Cached(payload),
            4 => Self::Stored(payload),
            5 => Self::Fixed { rest: payload as u8 },
            _ => unreachable!("no such state is written"),
        }
    }
}

const STATE_BITS: u32 = 3;

/// No copy.
const NONE: Key = Key::MAX;

#[derive(Clone)]
struct Chunk {
    words: [u32; CHUNK],
    past: [Past; CHUNK],
    told: Told,
    /// Keys of copies, if there are any.
    copies: Option<Box<[Key; CHUNK]>>,
    /// How many there are.
    copied: u16,
    /// Of these pages, how many are present.
    present: u16,
    /// Of these pages, how many are not absent.
    known: u16,
}

impl Chunk {
    const EMPTY: Self = Self {
        words: [0; CHUNK],
        past: [Past::UNKNOWN; CHUNK],
        told: Told::NOTHING,
        copies: None,
        copied: 0,
        present: 0,
        known: 0,
    };

    fn copy(&self, at: usize) -> Option<Key> {
        self.copies.as_ref().map(|copies| copies[at]).filter(|&key| key != NONE)
    }

    fn take_copy(&mut self, at: usize) -> Option<Key> {
        let copies = self.copies.as_mut()?;
        let key = std::mem::replace(&mut copies[at], NONE);
        if key == NONE {
            return None;
        }
        self.copied -= 1;
        if self.copied == 0 {
            self.copies = None;
        }
        Some(key)
    }
}

/// The pages of an address space.
#[derive(Clone, Default)]
pub(crate) struct PageTable {
    chunks: BTreeMap<usize, Box<Chunk>>,
    counts: Counts,
    returns: Returns,
    /// Since when pages had been away that came back, until that is counted.
    returned: Vec<Era>,
    /// Whether accesses are seen, what marks tell, pages that are still to be marked, and the one
    /// that came last.
    watching: bool,
    telling: Telling,
    unmarked: Vec<Pages>,
    latest: Option<PageNo>,
}

/// How many pages are in what state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Resident, doomed or fixed.
    pub present: usize,
    /// Doomed.
    pub doomed: usize,
    /// Fixed.
    pub fixed: usize,
    /// In the swap cache.
    pub cached: usize,
    /// In the store.
    pub stored: usize,
    /// Of those that are not in the store, pages that have a copy there.
    pub copied: usize,
}

impl Counts {
    fn change(&mut self, page: Page, unit: usize) {
        let times = |of: bool| if of { unit } else { 0 };
        self.present = self.present.wrapping_add(times(page.is_present()));
        self.doomed = self.doomed.wrapping_add(times(matches!(page, Page::Doomed { .. })));
        self.fixed = self.fixed.wrapping_add(times(matches!(page, Page::Fixed { .. })));
        self.cached = self.cached.wrapping_add(times(matches!(page, Page::Cached(_))));
        self.stored = self.stored.wrapping_add(times(matches!(page, Page::Stored(_))));
    }
}

/// What a visitor wants done with a page.
pub(crate) enum Visit {
    /// Set the page to this state, and continue.
    Set(Page),
    /// Set the page to this state, and end the visit after it.
    SetAndStop(Page),
}

impl PageTable {
    /// Returns how many pages are in what state.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the state of a page.
    pub(crate) fn get(&self, page: PageNo) -> Page {
        let chunk = self.chunks.get(&(page / CHUNK));
        chunk.map_or(Page::Absent, |chunk| Page::from_word(chunk.words[page % CHUNK]))
    }

    /// Returns the key of a page's copy.
    pub(crate) fn copy(&self, page: PageNo) -> Option<Key> {
        self.chunks.get(&(page / CHUNK))?.copy(page % CHUNK)
    }

    /// Gives a copy to a page that has none and may have one.
    pub(crate) fn keep(&mut self, page: PageNo, key: Key) {
        let chunk = self.chunks.get_mut(&(page / CHUNK)).expect("a known page has a chunk");
        let at = page % CHUNK;
        debug_assert!(Page::from_word(chunk.words[at]).may_be_copied() && chunk.copy(at).is_none());
        chunk.copies.get_or_insert_with(|| Box::new([NONE; CHUNK]))[at] = key;
        chunk.copied += 1;
        self.counts.copied += 1;
    }

    /// Takes the copy from a page, if it has one.
    pub(crate) fn take_copy(&mut self, page: PageNo) -> Option<Key> {
        let taken = self.chunks.get_mut(&(page / CHUNK))?.take_copy(page % CHUNK);
        self.counts.copied -= usize::from(taken.is_some());
        taken
    }

    /// Takes the copies from all pages of a range, up to `most`.
    pub(crate) fn take_copies(
        &mut self,
        of: &Pages,
        most: usize,
        mut visit: impl FnMut(PageNo, Key),
    ) {
        let mut left = most.min(self.counts.copied);
        if left == 0 {
            return;
        }
        for number in self.chunks_in(of) {
            let chunk = self.chunks.get_mut(&number).expect("listed just now");
            let first = number * CHUNK;
            for page in common(of, &(first..first + CHUNK)) {
                if chunk.copied == 0 || left == 0 {
                    break;
                }
                if let Some(key) = chunk.take_copy(page % CHUNK) {
                    left -= 1;
                    self.counts.copied -= 1;
                    visit(page, key);
                }
            }
        }
    }

    /// Shows all copies.
    pub(crate) fn for_each_copy(&self, mut visit: impl FnMut(PageNo, Key)) {
        for (&number, chunk) in self.chunks.iter().filter(|(_, chunk)| chunk.copied > 0) {
            let copies = (0..CHUNK).filter_map(|at| Some((at, chunk.copy(at)?)));
            copies.for_each(|(at, key)| visit(number * CHUNK + at, key));
        }
    }

    /// Sets the state of a page and returns the old one. The page must not have a copy if the new
    /// state may not have one.
    pub(crate) fn set(&mut self, page: PageNo, to: Page) -> Page {
        let number = page / CHUNK;
        if to == Page::Absent && !self.chunks.contains_key(&number) {
            return Page::Absent;
        }
        let chunk = self.chunks.entry(number).or_insert_with(|| Box::new(Chunk::EMPTY));
        let was = exchange(chunk, page % CHUNK, to, &mut self.counts);
        if chunk.known == 0 {
            self.chunks.remove(&number);
        }
        was
    }

    /// Records that a page is present, whether or not a thread waited for it; if it was elsewhere,
    /// its history decides how long it stays. Returns its old state.
    pub(crate) fn arrive(&mut self, page: PageNo, waited: bool, now: Era) -> Page {
        let chunk = self.chunks.entry(page / CHUNK).or_insert_with(|| Box::new(Chunk::EMPTY));
        let at = page % CHUNK;
        let was = Page::from_word(chunk.words[at]);
        let before = if was.is_away() { chunk.past[at] } else { Past::UNKNOWN };
        if before != Past::UNKNOWN {
            self.returned.push(before.at());
        }
        let past = self.returns.refaulted(before, page as u64, now);
        chunk.past[at] = past;
        let mut age = past.rounds();
        if self.watching {
            if was.is_away() {
                self.telling.back(!waited);
            }
            if waited {
                age = self.telling.came(self.returns, before, (page as u64, past, now));
            }
            chunk.told.came(at);
        }
        let was = exchange(chunk, at, Page::Resident { age }, &mut self.counts);
        if Watched::from_rounds(age).is_some() {
            self.has_come(page);
        }
        was
    }

    /// Takes the eras since which pages had been away that came back.
    pub(crate) fn take_returned(&mut self) -> std::vec::Drain<'_, Era> {
        self.returned.drain(..)
    }

    /// Records that a known page leaves and is in this slot. Returns its old state.
    pub(crate) fn leave(&mut self, page: PageNo, slot: SlotNo, now: Era) -> Page {
        let chunk = self.chunks.entry(page / CHUNK).or_insert_with(|| Box::new(Chunk::EMPTY));
        let at = page % CHUNK;
        chunk.past[at] = self.returns.left(chunk.past[at], page as u64, now);
        exchange(chunk, at, Page::Cached(slot), &mut self.counts)
    }

    /// Puts a page that was taken out at another place, with its history.
    pub(crate) fn put(&mut self, page: PageNo, state: Page, past: Past) {
        self.set(page, state);
        if let Some(chunk) = self.chunks.get_mut(&(page / CHUNK)) {
            chunk.past[page % CHUNK] = past;
        }
    }

    /// Takes out all pages of a range that are not absent, in order, with their history; none has a
    /// copy.
    ///
    /// # Cost
    /// A few ns a page.
    pub(crate) fn take(&mut self, of: &Pages) -> Vec<(PageNo, Page, Past)> {
        let mut taken = Vec::new();
        for number in self.chunks_in(of) {
            let chunk = self.chunks.get_mut(&number).expect("listed just now");
            let first = number * CHUNK;
            for page in common(of, &(first..first + CHUNK)) {
                if chunk.words[page % CHUNK] != 0 {
                    let was = exchange(chunk, page % CHUNK, Page::Absent, &mut self.counts);
                    taken.push((page, was, chunk.past[page % CHUNK]));
                }
            }
            if chunk.known == 0 {
                self.chunks.remove(&number);
            }
        }
        taken
    }

    /// Shows the present pages from `from` on to `visit`, over at most `chunks` chunks; returns
    /// where to continue, or `None` at the end.
    pub(crate) fn visit_present(
        &mut self,
        from: PageNo,
        chunks: usize,
        mut visit: impl FnMut(PageNo, Page, Past, &mut Told) -> Visit,
    ) -> Option<PageNo> {
        let mut rest = self.chunks.range_mut(from / CHUNK..);
        for (&number, chunk) in rest.by_ref().take(chunks) {
            let first = number * CHUNK;
            let mut unseen = chunk.present;
            for page in from.max(first)..first + CHUNK {
                if unseen == 0 {
                    break;
                }
                let state = Page::from_word(chunk.words[page % CHUNK]);
                if !state.is_present() {
                    continue;
                }
                // Present pages before `from` are not visited, so the loop ends at the chunk's end.
                unseen -= 1;
                let past = chunk.past[page % CHUNK];
                let (to, stop) = match visit(page, state, past, &mut chunk.told) {
                    Visit::Set(to) => (to, false),
                    Visit::SetAndStop(to) => (to, true),
                };
                debug_assert!(to != Page::Absent, "a visit does not empty chunks");
                if to != state {
                    exchange(chunk, page % CHUNK, to, &mut self.counts);
                }
                if stop {
                    return Some(page + 1);
                }
            }
        }
        rest.next().map(|(&number, _)| number * CHUNK)
    }

    /// Returns the pages of a range that are not absent, in order.
    pub(crate) fn known(&self, of: &Pages) -> impl Iterator<Item = (PageNo, Page)> + '_ {
        let of = of.clone();
        // None of an empty range.
        let numbers = of.start / CHUNK..of.end.div_ceil(CHUNK).max(of.start / CHUNK);
        self.chunks.range(numbers).flat_map(move |(&number, chunk)| {
            let first = number * CHUNK;
            common(&of, &(first..first + CHUNK)).filter_map(move |page| {
                let word = chunk.words[page % CHUNK];
                (word != 0).then(|| (page, Page::from_word(word)))
            })
        })
    }

    /// Shows all pages that are not absent.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(PageNo, Page)) {
        for (&number, chunk) in &self.chunks {
            for (at, &word) in chunk.words.iter().enumerate().filter(|(_, word)| **word != 0) {
                visit(number * CHUNK + at, Page::from_word(word));
            }
        }
    }

    fn chunks_in(&self, of: &Pages) -> Vec<usize> {
        if of.is_empty() {
            return Vec::new();
        }
        let last = (of.end - 1) / CHUNK;
        let numbers = (Bound::Included(of.start / CHUNK), Bound::Included(last));
        self.chunks.range(numbers).map(|(&number, _)| number).collect()
    }
}

fn exchange(chunk: &mut Chunk, at: usize, to: Page, counts: &mut Counts) -> Page {
    let was = Page::from_word(chunk.words[at]);
    debug_assert!(to.may_be_copied() || chunk.copy(at).is_none(), "{to:?} with a copy");
    chunk.words[at] = to.word();
    chunk.present -= u16::from(was.is_present());
    chunk.present += u16::from(to.is_present());
    chunk.known -= u16::from(was != Page::Absent);
    chunk.known += u16::from(to != Page::Absent);
    counts.change(was, usize::MAX);
    counts.change(to, 1);
    was
}

#[cfg(test)]
mod tests;
