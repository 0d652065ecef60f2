//! Brings pages in when a thread touches one that is missing, in that thread.
//!
//! Runs inside a signal handler (signal/H1 to H3): it sleeps only in `room` and
//! `await_page`, and both are woken by threads that never touch a region.

use std::ops::Range;
use std::sync::atomic::Ordering;

use rustix::time::{ClockId, clock_gettime};

use super::core::{CHUNK, Core};
use super::registry;
use super::space::{Space, space_of, window_max};
use super::word::{State, Word};
use crate::sys::signal::die;
use zfold_uffd::policy::Past;

/// Nanoseconds of the monotonic clock.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Resolves a touch of a missing page, if the address belongs to a region.
pub(super) fn resolve(address: usize) -> bool {
    let from = now();
    let found = registry::find(address, |managed| {
        managed.core.touched(&managed.space, managed.space.key_of(address));
        managed.core.latency.record(now().saturating_sub(from));
    });
    found.is_some()
}

impl Core {
    /// A thread has touched a page and found it missing; returns when it may try again.
    pub(super) fn touched(&self, space: &Space, key: u32) {
        self.counters.faults_total.add(1);
        let window = space.window(key);
        if window > window_max() && self.page(key + window_max()).load().is_away() {
            self.ahead.post(&(key + window_max()..key + window));
            self.room.call_for_work();
        }
        if !self.bring(space, key, window) {
            self.check_there(space, key);
        }
    }

    /// Brings in a page, together with pages that follow it and come from the same state, up to
    /// `window` in all. Returns whether this thread had to bring it in.
    pub(super) fn bring(&self, space: &Space, key: u32, window: u32) -> bool {
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
                self.bring_from(space, key, word, window, 1);
                break true;
            }
        };
        if has_room && !brought {
            self.room.give(1);
        }
        brought
    }

    /// Claims the pages that follow `key`, came from the same state and have room, up to
    /// `window` in all and the end of the chunk; returns how many are claimed.
    fn claim_more(&self, space: &Space, key: u32, was: Word, window: u32) -> u32 {
        let end = space.keys().end.min((key / CHUNK + 1) * CHUNK);
        let most = window.min(window_max()).min(end - key);
        // A sequence that has lasted takes the last room, too: with a fault for each page there
        // would be even less.
        let leave = if window < window_max() { self.room.reserve() } else { 0 };
        let room = match most {
            0 | 1 => 0,
            most => self.room.take_up_to(most - 1, leave),
        };
        let follows = |more: u32, word: Word| {
            word.state() == was.state()
                && (was.state() != State::Staged || word.value() == was.value() + more)
        };
        let mut claimed = 1;
        while claimed <= room {
            let word = self.page(key + claimed).load();
            if !follows(claimed, word) || !self.page(key + claimed).step(word, word.arriving()) {
                break;
            }
            claimed += 1;
        }
        self.room.give(room - (claimed - 1));
        claimed
    }

    /// Brings in a page that this thread is in charge of, and those that follow it, of which
    /// `touched` count as touched.
    fn bring_from(&self, space: &Space, key: u32, was: Word, window: u32, touched: u32) {
        let pages = self.claim_more(space, key, was, window);
        let to = space.address_of(key);
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
                    self.frames.put(to, scratch.pages.bytes_mut(0..pages as usize));
                });
                &self.counters.loads_total
            }
            State::Staged => {
                let slot = was.value() as usize;
                self.frames.put(to, self.frames.staged(slot..slot + pages as usize));
                (was.value()..was.value() + pages).for_each(|slot| self.ring.copied(slot));
                &self.counters.refaults_total
            }
            _ => {
                self.frames.put(to, self.zeros(pages));
                &self.counters.first_touches_total
            }
        };
        counter.add(touched.into());
        self.counters.prefetched_total.add(u64::from(pages - touched));
        self.count_in(key, pages);
        let now = self.clock.now();
        let is_back = was.is_away();
        for key in key..key + pages {
            let past = if is_back { self.past(key).0.returned(now) } else { Past::first(now) };
            self.remember(key, past, past.rounds());
        }
        let stored = was.state() == State::Stored;
        (key..key + pages).for_each(|key| self.settle(key, State::Resident, 0, stored));
    }

    fn zeros(&self, pages: u32) -> &[u8] {
        self.zeros.pages(pages as usize)
    }

    /// The page's word says that it is there. Usually another thread has just brought it in; but if
    /// its owner has dropped it by `madvise(MADV_DONTNEED)`, it is zeros from now on.
    fn check_there(&self, space: &Space, key: u32) {
        let word = self.page(key).load();
        let address = space.address_of(key);
        if word.state() == State::Pinned {
            self.frames.put(address, self.zeros(1));
        } else if self.page(key).step(word, word.claimed()) {
            self.frames.put(address, self.zeros(1));
            self.settle(key, State::Resident, 0, false);
        }
        self.frames.wake(address);
    }

    /// Brings in some posted pages of a region; returns whether there were any.
    fn bring_ahead(&self, space: &Space) -> bool {
        let Some(keys) = self.ahead.take(&space.keys(), window_max()) else { return false };
        self.prefetch(space, keys);
        true
    }

    /// The same for a background thread, for any region.
    pub(super) fn bring_ahead_of_any(&self) -> bool {
        let Some(keys) = self.ahead.take(&(0..u32::MAX), window_max()) else { return false };
        let spaces = self.spaces();
        if let Some(space) = space_of(&spaces, keys.start) {
            self.prefetch(space, keys);
        }
        true
    }

    /// Brings in the pages of a range from the store and the staging area, as long as there is free
    /// room. Keys beyond the region are ignored: a post may be older than it is.
    pub(super) fn prefetch(&self, space: &Space, keys: Range<u32>) {
        let (mut key, end) = (keys.start, keys.end.min(space.keys().end));
        while key < end {
            let word = self.page(key).load();
            if !word.is_away() {
                key += 1;
                continue;
            }
            if self.room.take_up_to(1, self.room.reserve()) == 0 {
                return;
            }
            if self.page(key).step(word, word.arriving()) {
                self.bring_from(space, key, word, end - key, 0);
            } else {
                self.room.give(1);
            }
        }
    }

    /// Brings a page and pins it.
    pub(super) fn pin(&self, space: &Space, key: u32, window: u32) {
        while self.page(key).change(Word::pinned).is_err() {
            self.bring(space, key, window);
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
