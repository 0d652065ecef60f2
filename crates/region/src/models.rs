//! Models of word/W1 to W5 and leave/L1: loom explores every interleaving of the threads that touch
//! one page.
//!
//! A page is a number. `place` is where the program sees it, `slots` the staging area, `entry`
//! what the store holds, `digest` what was stored last; places and slots are loom cells, so that a
//! reader beside a writer is a failure.

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Mutex};
use loom::thread;

use super::word::{Page, State, Word};
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};

struct World {
    word: AtomicU32,
    place: UnsafeCell<u32>,
    slots: [UnsafeCell<u32>; 3],
    owners: [AtomicU32; 3],
    entry: AtomicU32,
    /// What was stored last.
    digest: AtomicU32,
    /// The processor refuses writes to `place`: the page is protected, or was dropped.
    refuses: AtomicBool,
    /// The kernel may merge the page with an equal one. Locked while it changes the page's entry.
    merges: Mutex<bool>,
}

/// What the page holds.
const CONTENT: u32 = 7;
/// A page that nobody has touched, or that was cleared.
const ZEROS: u32 = 1;
/// What is left where the page is not.
const NOTHING: u32 = 0;

impl World {
    /// A page in slot 0 of the staging area.
    fn new() -> Arc<Self> {
        let world = Self {
            word: AtomicU32::new(0),
            place: UnsafeCell::new(NOTHING),
            slots: [CONTENT, NOTHING, NOTHING].map(UnsafeCell::new),
            owners: [1, 0, 0].map(AtomicU32::new),
            entry: AtomicU32::new(NOTHING),
            digest: AtomicU32::new(NOTHING),
            refuses: AtomicBool::new(false),
            merges: Mutex::new(false),
        };
        world.page().change(Word::arriving).unwrap();
        world.page().settle(State::Staged, 0, false);
        Arc::new(world)
    }

    fn page(&self) -> Page<'_> {
        Page(&self.word)
    }

    fn get(cell: &UnsafeCell<u32>) -> u32 {
        // SAFETY: none but the protocol's: this is what the model checks.
        cell.with(|value| unsafe { *value })
    }

    fn set(cell: &UnsafeCell<u32>, to: u32) {
        // SAFETY: none but the protocol's: this is what the model checks.
        cell.with_mut(|value| unsafe { *value = to });
    }

    /// The program touches the page; returns what it reads.
    fn fault(&self) -> u32 {
        loop {
            let word = self.page().load();
            if word.is_there() {
                break;
            }
            if !self.page().step(word, word.arriving()) {
                thread::yield_now();
                continue;
            }
            let stored = word.state() == State::Stored;
            if stored {
                Self::set(&self.place, self.entry.load(Ordering::Acquire));
                self.refuses.store(false, Ordering::Release);
            } else if word.state() == State::Missing {
                Self::set(&self.place, ZEROS);
            } else {
                let slot = word.value() as usize;
                Self::set(&self.place, Self::get(&self.slots[slot]));
                self.owners[slot].store(2, Ordering::Release);
            }
            self.page().settle(State::Resident, 0, stored);
            break;
        }
        Self::get(&self.place)
    }

    /// The mover takes the page to a slot.
    fn leave(&self, slot: u32) {
        let at = slot as usize;
        if self.page().change(Word::leaving).is_ok() {
            Self::set(&self.slots[at], Self::get(&self.place));
            Self::set(&self.place, NOTHING);
            self.owners[at].store(1, Ordering::Release);
            self.page().settle(State::Staged, slot, false);
        }
    }

    /// A background thread stores the page of a slot, unless `is_copy` says of the copy and the
    /// page that they are the same, and empties the slot.
    fn store(
        &self,
        slot: u32,
        is_copy: impl Fn(u32, u32) -> bool,
        end: impl Fn(Word, u32) -> Option<Word>,
    ) {
        self.store_or_keep(slot, is_copy, end, |holds| holds);
    }

    /// The same; `keeps` says whether a page that was touched has a copy if the store holds it, and
    /// if not.
    fn store_or_keep(
        &self,
        slot: u32,
        is_copy: impl Fn(u32, u32) -> bool,
        end: impl Fn(Word, u32) -> Option<Word>,
        keeps: impl Fn(bool) -> bool,
    ) {
        let at = slot as usize;
        let begun = loop {
            match self.page().change(|word| word.storing(slot)) {
                Ok(_) => break true,
                // Its copy is being dropped.
                Err(word) if word.state() == State::Staged && word.value() == slot => {
                    thread::yield_now();
                }
                Err(_) => break false,
            }
        };
        if begun {
            let page = Self::get(&self.slots[at]);
            let copied = self.page().load().is_copied();
            let holds = page != ZEROS;
            if !holds {
                self.entry.store(NOTHING, Ordering::Release);
            } else if !copied || !is_copy(self.digest.load(Ordering::Relaxed), page) {
                self.entry.store(page, Ordering::Release);
                self.digest.store(page, Ordering::Relaxed);
            }
            let ended = |word| if holds { end(word, slot) } else { word.emptied(slot) };
            if self.page().change(ended).is_ok() {
                self.owners[at].store(0, Ordering::Release);
            } else if self.page().change(|word| word.kept().filter(|_| keeps(holds))).is_err() {
                self.entry.store(NOTHING, Ordering::Release);
                let _ = self.page().change(|word| Some(word.freed()));
            }
        }
        // Whoever copies from the slot says when it is done.
        while self.owners[at].load(Ordering::Acquire) == 1 {
            thread::yield_now();
        }
        Self::set(&self.slots[at], NOTHING);
    }
}

impl World {
    /// The program touches the page, which is stored and comes protected.
    fn fault_protected(&self) {
        self.page().change(Word::arriving).unwrap();
        Self::set(&self.place, self.entry.load(Ordering::Acquire));
        self.refuses.store(true, Ordering::Release);
        self.page().change(Word::protected).unwrap();
        self.page().settle(State::Resident, 0, true);
    }

    /// The program writes to the page, wherever it is. The processor does not look at words.
    fn write(&self, to: u32) {
        while self.refuses.load(Ordering::Acquire) {
            let word = self.page().load();
            if matches!(word.state(), State::Stored) {
                self.fault();
            } else if word.is_protected() && self.page().step(word, word.claimed()) {
                self.refuses.store(false, Ordering::Release);
                self.page().settle(State::Resident, 0, false);
            }
            thread::yield_now();
        }
        Self::set(&self.place, to);
    }

    /// The mover drops the page where it is.
    fn drop_place(&self, dropping: impl Fn(Word) -> Option<Word>) {
        if self.page().change(dropping).is_ok() {
            Self::set(&self.place, NOTHING);
            self.page().settle(State::Stored, 0, false);
        }
    }
}

/// How the mover drops a page that the kernel may merge.
#[derive(Clone, Copy, PartialEq)]
enum Drops {
    /// After the word it ends merging, and then asks for the protection.
    Asks,
    /// It asks, and leaves merging on.
    AsksOnly,
    /// It does not ask.
    Believes,
}

impl World {
    /// The kernel merges the page, if it is there, and forgets its protection.
    fn merge(&self) {
        let merges = self.merges.lock().unwrap();
        if *merges && !matches!(self.page().load().state(), State::Stored) {
            self.refuses.store(false, Ordering::Release);
        }
    }

    /// The mover drops the page where it is, or lets it stay, with its copy.
    fn drop_merged(&self, how: Drops) {
        if self.page().change(Word::dropping).is_err() {
            return;
        }
        if how == Drops::Asks {
            *self.merges.lock().unwrap() = false;
        }
        if how == Drops::Believes || self.refuses.load(Ordering::Acquire) {
            let _entry = self.merges.lock().unwrap();
            Self::set(&self.place, NOTHING);
            self.refuses.store(true, Ordering::Release);
            self.page().settle(State::Stored, 0, false);
        } else {
            self.page().settle(State::Resident, 0, true);
        }
    }
}

/// A page that came back protected is merged, written and dropped.
fn dropped_while_it_is_merged(how: Drops) {
    model(move |world| {
        world.store(0, same, Word::stored);
        *world.merges.lock().unwrap() = true;
        world.fault_protected();
        let mover = beside(&world, move |world| world.drop_merged(how));
        let kernel = beside(&world, |world| world.merge());
        world.write(CONTENT + 1);
        mover.join().unwrap();
        kernel.join().unwrap();
        assert_eq!(world.fault(), CONTENT + 1, "the write was lost");
    });
}

#[test]
fn a_page_that_is_merged_takes_no_write_with_it() {
    dropped_while_it_is_merged(Drops::Asks);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_twin_that_believes_in_protection_is_caught() {
    dropped_while_it_is_merged(Drops::Believes);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_twin_that_asks_and_leaves_merging_on_is_caught() {
    dropped_while_it_is_merged(Drops::AsksOnly);
}

/// A page that is protected since it came from the store is dropped while it is written.
fn dropped_while_it_is_written(
    dropping: impl Fn(Word) -> Option<Word> + Send + Sync + Copy + 'static,
) {
    model(move |world| {
        world.store(0, same, Word::stored);
        world.fault_protected();
        let mover = beside(&world, move |world| world.drop_place(dropping));
        world.write(CONTENT + 1);
        mover.join().unwrap();
        assert_eq!(world.fault(), CONTENT + 1, "the write was lost");
    });
}

#[test]
fn a_page_that_is_dropped_takes_no_write_with_it() {
    dropped_while_it_is_written(Word::dropping);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_twin_that_drops_pages_to_which_writes_are_allowed_is_caught() {
    dropped_while_it_is_written(|word| word.leaving().filter(|_| word.is_copied()));
}

/// A page is dropped where it is, while another thread drops copies.
fn dropped_while_copies_are(
    dropping: impl Fn(Word) -> Option<Word> + Send + Sync + Copy + 'static,
) {
    model(move |world| {
        world.store(0, same, Word::stored);
        world.fault_protected();
        let dropper = beside(&world, move |world| world.drop_copy());
        world.drop_place(dropping);
        let found = world.fault();
        dropper.join().unwrap();
        assert_eq!(found, CONTENT, "the page was lost");
    });
}

#[test]
fn a_page_that_is_dropped_keeps_what_the_store_has() {
    dropped_while_copies_are(Word::dropping);
}

#[test]
#[should_panic(expected = "the page was lost")]
fn a_twin_that_drops_page_and_copy_is_caught() {
    dropped_while_copies_are(|word| word.dropping().and(word.leaving()));
}

/// Compares.
fn same(copy: u32, page: u32) -> bool {
    copy == page
}

impl World {
    /// A background thread drops the copy of the page.
    fn drop_copy(&self) {
        if self.page().change(Word::freeing).is_ok() {
            self.entry.store(NOTHING, Ordering::Release);
            let _ = self.page().change(|word| Some(word.freed()));
        }
    }
}

/// Runs something in another thread.
fn beside<R: 'static>(
    world: &Arc<World>,
    run: impl FnOnce(&World) -> R + 'static,
) -> thread::JoinHandle<R> {
    let world = Arc::clone(world);
    thread::spawn(move || run(&world))
}

fn model(run: impl Fn(Arc<World>) + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(4);
    builder.check(move || run(World::new()));
}

/// One thread stores the page while another one touches it, and it leaves again.
fn touched_while_stored(end: impl Fn(Word, u32) -> Option<Word> + Send + Sync + Copy + 'static) {
    model(move |world| {
        let background = beside(&world, move |world| world.store(0, same, end));
        assert_eq!(world.fault(), CONTENT, "the page was lost");
        // Only this thread takes the page away, so it is there to be written.
        World::set(&world.place, CONTENT + 1);
        world.leave(1);
        background.join().unwrap();
        assert_eq!(world.fault(), CONTENT + 1, "the update was lost");
    });
}

#[test]
fn a_page_touched_while_it_is_stored_is_the_same() {
    touched_while_stored(Word::stored);
}

#[test]
#[should_panic(expected = "the update was lost")]
fn a_twin_that_makes_a_page_stored_whatever_happened_is_caught() {
    touched_while_stored(|word, _| {
        let stored = word.is_storing() && !matches!(word.state(), State::Arriving);
        stored.then(|| forced(word))
    });
}

/// Stored, without a look at where the page is.
fn forced(word: Word) -> Word {
    let slot = word.value();
    let in_slot = Word::from_parts(State::Staged, slot, true);
    in_slot.stored(slot).expect("in this slot and in work")
}

/// A page that came from the store leaves again, changed or not, while another thread drops copies.
fn left_with_a_copy(
    changed: u32,
    is_copy: impl Fn(u32, u32) -> bool + Send + Sync + Copy + 'static,
) {
    model(move |world| {
        world.store(0, same, Word::stored);
        assert_eq!(world.fault(), CONTENT);
        World::set(&world.place, CONTENT + changed);
        let dropper = beside(&world, move |world| world.drop_copy());
        world.leave(1);
        world.store(1, is_copy, Word::stored);
        let found = world.fault();
        dropper.join().unwrap();
        assert_eq!(found, CONTENT + changed, "the copy became the page");
    });
}

#[test]
fn a_page_that_was_only_read_becomes_its_copy() {
    left_with_a_copy(0, same);
}

#[test]
fn a_page_that_was_changed_is_stored_anew() {
    left_with_a_copy(1, same);
}

#[test]
#[should_panic(expected = "the copy became the page")]
fn a_twin_that_does_not_compare_is_caught() {
    left_with_a_copy(1, |_, _| true);
}

/// A page that has a copy is cleared and leaves. It is touched while that is stored, gets its old
/// contents again, and leaves.
fn cleared_and_written_again(keeps: impl Fn(bool) -> bool + Send + Sync + Copy + 'static) {
    model(move |world| {
        world.store(0, same, Word::stored);
        assert_eq!(world.fault(), CONTENT);
        World::set(&world.place, ZEROS);
        world.leave(1);
        let background =
            beside(&world, move |world| world.store_or_keep(1, same, Word::stored, keeps));
        assert_eq!(world.fault(), ZEROS, "what was cleared came back");
        World::set(&world.place, CONTENT);
        world.leave(2);
        background.join().unwrap();
        world.store(2, same, Word::stored);
        assert_eq!(world.fault(), CONTENT, "the store does not have the page");
    });
}

#[test]
fn a_page_that_was_cleared_has_no_copy() {
    cleared_and_written_again(|holds| holds);
}

#[test]
#[should_panic(expected = "the store does not have the page")]
fn a_twin_that_takes_nothing_for_a_copy_is_caught() {
    cleared_and_written_again(|_| true);
}

/// Two threads touch a page that is stored: one brings it, and both read it.
#[test]
fn two_threads_that_touch_a_page_bring_it_once() {
    model(|world| {
        world.store(0, same, Word::stored);
        let other = beside(&world, move |world| world.fault());
        assert_eq!(world.fault(), CONTENT);
        assert_eq!(other.join().unwrap(), CONTENT);
    });
}

/// A page that leaves while another thread touches it is read before or after.
#[test]
fn a_page_that_leaves_is_never_read_half() {
    model(|world| {
        assert_eq!(world.fault(), CONTENT);
        let mover = beside(&world, move |world| world.leave(1));
        // A pinned page is read without a fault; the pin keeps it there.
        while world.page().change(Word::pinned).is_err() {
            world.fault_only();
            thread::yield_now();
        }
        assert_eq!(World::get(&world.place), CONTENT, "the page left under a pin");
        mover.join().unwrap();
    });
}

impl World {
    /// Brings the page without reading it.
    fn fault_only(&self) {
        let word = self.page().load();
        if self.page().step(word, word.arriving()) {
            let slot = word.value() as usize;
            Self::set(&self.place, Self::get(&self.slots[slot]));
            self.page().settle(State::Resident, 0, false);
        }
    }
}
