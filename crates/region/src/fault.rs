//! Brings pages in when a thread touches one that is missing, in that thread.
//!
//! Runs inside a signal handler (sigbus/H1 to H3): it sleeps only in `room` and
//! `await_page`, and both are woken by threads that never touch a region.

use std::ops::Range;
use std::sync::atomic::Ordering;

use rustix::time::{ClockId, clock_gettime};

use super::core::{CHUNK, Core, WRITE_COSTS};
use super::registry;
use super::space::{Space, space_of, window_max};
use super::streams::Steps;
use super::word::{State, Word};
use crate::sys::map::is_there;
use crate::sys::signal::die;
use zfold_uffd::page::page_len;
use zfold_uffd::policy::{Past, Returns};
use zfold_uffd::sigbus::{Resolver, Touch};

/// Nanoseconds of the monotonic clock.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// To touch broken memory again does not help.
pub(super) static RESOLVER: Resolver =
    Resolver::new(|of: &Touch| !of.is_broken && resolve(of.address, of.writes));

/// Resolves a touch of a page that is missing, or protected from writes, if the address belongs to
/// a region; `writes`: whether it was a write, if that is known.
pub(super) fn resolve(address: usize, writes: Option<bool>) -> bool {
    let from = now();
    let found = registry::find(address, |managed| {
        managed.core.touched(&managed.space, managed.space.key_of(address), writes);
        managed.core.latency.record(now().saturating_sub(from));
    });
    found.is_some()
}

impl Core {
    /// A thread has touched a page and found it missing, or protected from writes; returns when it
    /// may try again.
    pub(super) fn touched(&self, space: &Space, key: u32, writes: Option<bool>) {
        self.counters.faults_total.add(1);
        if self.page(key).load().is_protected() {
            let address = space.address_of(key);
            if writes == Some(false) && is_there(address) {
                // Another thread has just brought it in.
                self.frames.wake(address);
            } else {
                self.earn(-WRITE_COSTS);
                self.allow_writes(space, space.written(key));
            }
            return;
        }
        let window = Steps { writes: writes == Some(true), ..space.window(key) };
        let (own, rest) = window.split(window_max());
        let is_away = |at: u16| self.page(rest.key(at)).load().is_away();
        // Some of them may be there, or none was touched yet.
        if rest.count > 0 && [0, rest.count / 2, rest.count - 1].into_iter().any(is_away) {
            self.ahead.post(rest);
            self.room.call_for_work();
        }
        if !self.bring(space, own) {
            self.check_there(space, key);
        } else if own.count > 1 && !own.are_neighbours() {
            self.prefetch(space, own.split(1).1, self.leave(own));
        }
    }

    /// Allows writes to the first of some pages, and to those behind it that are protected, too,
    /// and lie next to each other.
    fn allow_writes(&self, space: &Space, steps: Steps) {
        let claim = |at: u16| {
            let protected = |word: Word| if word.is_protected() { word.claimed() } else { None };
            self.page(steps.key(at)).change(protected).is_ok()
        };
        if !claim(0) {
            // Another thread allows them, or the page leaves.
            self.await_page(steps.from);
            self.frames.wake(space.address_of(steps.from));
            return;
        }
        let steps = steps.split(CHUNK as u16).0;
        let most = if steps.are_neighbours() { steps.count } else { 1 };
        let last = (1..most).find(|&at| !claim(at)).unwrap_or(most.max(1)) - 1;
        let (first, last) = (steps.from.min(steps.key(last)), steps.from.max(steps.key(last)));
        let end = space.address_of(last) + page_len();
        self.frames.allow_writes(&(space.address_of(first)..end));
        self.set_changed(steps.from, true);
        (first..=last).for_each(|key| self.settle(key, State::Resident, 0, false));
    }

    /// Returns how much room windows of so many pages leave to touches. A sequence that has lasted
    /// takes the last room, too: with a fault for each page there would be even less.
    fn leave(&self, steps: Steps) -> u32 {
        if steps.count < window_max() { self.room.reserve() } else { 0 }
    }

    /// Brings in the first of some pages, together with those behind it that come from the same
    /// state and lie next to each other. Returns whether this thread had to bring it in.
    pub(super) fn bring(&self, space: &Space, steps: Steps) -> bool {
        let key = steps.from;
        let mut has_room = false;
        let brought = loop {
            let word = self.page(key).load();
            if word.is_there() {
                break false;
            }
            if word.arriving().is_none() {
                let helps = word.state() == State::Arriving && self.bring_ahead(space);
                if !helps {
                    self.await_page(key);
                }
                continue;
            }
            if !has_room {
                // room/L1: before this thread is in charge of the page, because it may have to wait
                // here.
                if self.room.take() {
                    self.counters.waits_for_room_total.add(1);
                }
                has_room = true;
            }
            if self.page(key).step(word, word.arriving()) {
                self.bring_from(space, steps, word, 1);
                break true;
            }
        };
        if has_room && !brought {
            self.room.give(1);
        }
        brought
    }

    /// Claims the pages behind the first that lie next to each other, came from the same state and
    /// have room, up to the end of the chunk; returns all that are claimed.
    fn claim_more(&self, steps: Steps, was: Word) -> Range<u32> {
        let key = steps.from;
        let chunk = key / CHUNK * CHUNK;
        let steps = steps.split(window_max()).0;
        let most = match steps.are_neighbours() {
            true => steps.within(&(chunk..chunk + CHUNK)).count.into(),
            false => 1,
        };
        let room = match most {
            0 | 1 => 0,
            most => self.room.take_up_to(most - 1, self.leave(steps)),
        };
        let follows = |at: u32, word: Word| {
            let slot = was.value().wrapping_add_signed(at.cast_signed() * i32::from(steps.step));
            word.state() == was.state() && (was.state() != State::Staged || word.value() == slot)
        };
        let mut claimed = 1;
        while claimed <= room {
            let page = self.page(steps.key(claimed as u16));
            let word = page.load();
            if !follows(claimed, word) || !page.step(word, word.arriving()) {
                break;
            }
            claimed += 1;
        }
        self.room.give(room - (claimed - 1));
        if steps.step < 0 { key + 1 - claimed..key + 1 } else { key..key + claimed }
    }

    /// Brings in a page that this thread is in charge of, the first of `steps`, and those behind
    /// it, of which `touched` count as touched.
    fn bring_from(&self, space: &Space, steps: Steps, was: Word, touched: u32) {
        let keys = self.claim_more(steps, was);
        let (key, pages) = (keys.start, keys.end - keys.start);
        let to = space.address_of(key);
        let mut protect = false;
        let counter = match was.state() {
            State::Stored => {
                self.scratches.with(|scratch| {
                    for at in 0..pages as usize {
                        let page = scratch.pages.bytes_mut(at..at + 1);
                        let key = u64::from(key) + at as u64;
                        match self.store.load_with(&mut scratch.loader, key, page) {
                            Ok(true) => {}
                            Ok(false) => die("cannot bring a page back", "the store lost it"),
                            Err(_) => die("cannot bring a page back", "its bytes are damaged"),
                        }
                    }
                    protect = self.frames.protects()
                        && !steps.writes
                        && !self.changes(&keys)
                        && self.protection_pays();
                    let bytes = scratch.pages.bytes_mut(0..pages as usize);
                    self.frames.put(to, bytes, protect);
                });
                &self.counters.loads_total
            }
            State::Staged => {
                let first = was.value() - (steps.from - key);
                let slots = first as usize..(first + pages) as usize;
                self.frames.put(to, self.frames.staged(slots), false);
                (first..first + pages).for_each(|slot| self.ring.copied(slot));
                &self.counters.refaults_total
            }
            _ => {
                self.frames.put(to, self.zeros.pages(pages as usize), false);
                &self.counters.first_touches_total
            }
        };
        counter.add(touched.into());
        self.counters.prefetched_total.add(u64::from(pages - touched));
        self.count_in(key, pages);
        let now = self.clock.now();
        // Relaxed: a hint.
        let mut returns = Returns::from_bits(self.returns.load(Ordering::Relaxed));
        for key in key..key + pages {
            let before = if was.is_away() { self.past(key).0 } else { Past::UNKNOWN };
            let past = returns.refaulted(before, key.into(), now);
            self.remember(key, past, past.rounds());
        }
        self.returns.store(returns.bits(), Ordering::Relaxed);
        let stored = was.state() == State::Stored;
        for key in key..key + pages {
            if protect {
                // Also one that was there already, which is found out when it leaves (word/W5).
                // Cannot fail: this thread is in charge of the page.
                let _ = self.page(key).change(Word::protected);
            }
            self.settle(key, State::Resident, 0, stored);
        }
    }

    /// Returns whether pages are likely to change: at least an eighth of them did before they left.
    fn changes(&self, keys: &Range<u32>) -> bool {
        let changed = keys.clone().filter(|&key| self.has_changed(key)).count();
        changed * 8 > keys.len()
    }

    /// The page's word says that it is there. Usually another thread has just brought it in; but if
    /// its owner has dropped it by `madvise(MADV_DONTNEED)`, it is zeros from now on.
    fn check_there(&self, space: &Space, key: u32) {
        let word = self.page(key).load();
        let address = space.address_of(key);
        if word.is_protected() {
            // Protected after this touch: the next one tells whether it is there.
        } else if word.state() == State::Pinned {
            self.frames.put(address, self.zeros.pages(1), false);
        } else if self.page(key).step(word, word.claimed()) {
            self.frames.put(address, self.zeros.pages(1), false);
            self.settle(key, State::Resident, 0, false);
        }
        self.frames.wake(address);
    }

    /// Brings in some posted pages of a region; returns whether there were any.
    fn bring_ahead(&self, space: &Space) -> bool {
        let Some(steps) = self.ahead.take(&space.keys(), window_max()) else { return false };
        self.prefetch(space, steps, self.room.reserve());
        true
    }

    /// The same for a background thread, for any region.
    pub(super) fn bring_ahead_of_any(&self) -> bool {
        let Some(steps) = self.ahead.take(&(0..u32::MAX), window_max()) else { return false };
        let spaces = self.spaces();
        if let Some(space) = space_of(&spaces, steps.from) {
            self.prefetch(space, steps, self.room.reserve());
        }
        true
    }

    /// Brings in pages from the store and the staging area, as long as there is room for more than
    /// `leave`. Keys beyond the region are ignored: a post may be older than it is.
    pub(super) fn prefetch(&self, space: &Space, steps: Steps, leave: u32) {
        let mut rest = steps.within(&space.keys());
        while rest.count > 0 {
            let page = self.page(rest.from);
            let word = page.load();
            if !word.is_away() {
                rest = rest.split(1).1;
                continue;
            }
            if self.room.take_up_to(1, leave) == 0 {
                return;
            }
            if page.step(word, word.arriving()) {
                self.bring_from(space, rest, word, 0);
            } else {
                self.room.give(1);
            }
        }
    }

    /// Brings a page and pins it, together with those behind it.
    pub(super) fn pin(&self, space: &Space, steps: Steps) {
        while let Err(word) = self.page(steps.from).change(Word::pinned) {
            if word.is_protected() {
                self.allow_writes(space, steps);
            } else {
                self.bring(space, Steps { writes: true, ..steps });
            }
        }
    }

    /// Removes all pins of a range that have no owner left.
    pub(super) fn unpin_all(&self, keys: Range<u32>) {
        for key in keys {
            while self.page(key).change(Word::unpinned).is_ok() {
                self.pinned.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Removes a pin.
    pub(super) fn unpin(&self, keys: Range<u32>) {
        self.pinned.fetch_sub(u64::from(keys.end - keys.start), Ordering::Relaxed);
        for key in keys {
            let unpinned = self.page(key).change(Word::unpinned);
            debug_assert!(unpinned.is_ok(), "{unpinned:?}");
        }
    }
}
