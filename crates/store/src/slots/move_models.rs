//! Models of T5 under every interleaving: the pool's mover, which finds a slot by the key before
//! an object, beside a load of that object, and beside its free and another one in its place. The
//! twins break one step, and loom must catch them.
//!
//! The slots are the real ones. Of the pool the models have what matters: which places are taken,
//! under a lock, and that nothing is taken where the mover empties.

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Mutex};
use zfold_pool::{Address, Owners as _};

use super::form::Form;
use super::table::SlotTable;
use crate::entry::{Entry, Kind, State};
use crate::sync::atomic::{AtomicU32, Ordering};

/// A place in the segment to be emptied, one in another, and the one reserved for the move.
const OLD: u64 = 0;
const OTHER: u64 = 1;
const NEW: u64 = 2;

/// In what the one who frees may be wrong.
#[derive(Clone, Copy, PartialEq)]
enum Free {
    Right,
    /// It frees the place before the entry has left its slot.
    Early,
}

/// What the pool's lock guards.
struct Heap {
    taken: [bool; 3],
    victim: bool,
}

/// Two slots and three places; at first the object of slot 0 is at the old place.
struct World {
    table: SlotTable,
    heap: Mutex<Heap>,
    keys: [AtomicU32; 3],
    payloads: [UnsafeCell<u32>; 3],
}

fn entry(place: u64) -> Entry {
    Entry::of_address(State::new(Kind::Raw, 4, 0), Address::from_bits(place))
}

fn place(entry: Entry) -> Option<u64> {
    entry.address().map(Address::to_bits)
}

impl World {
    fn new() -> Arc<Self> {
        let world = Self {
            table: SlotTable::new(2, Form::Narrow).unwrap(),
            heap: Mutex::new(Heap { taken: [true, false, false], victim: false }),
            keys: [0, 0, 0].map(AtomicU32::new),
            payloads: [77, 0, 0].map(UnsafeCell::new),
        };
        world.table.lock(0).replace(entry(OLD));
        Arc::new(world)
    }

    fn payload(&self, place: u64) -> u32 {
        // SAFETY: none but the protocol's: this is what the model checks.
        self.payloads[place as usize].with(|payload| unsafe { *payload })
    }

    fn write(&self, place: u64, value: u32) {
        // SAFETY: as in `payload`.
        self.payloads[place as usize].with_mut(|payload| unsafe { *payload = value });
    }

    fn load(&self, key: u64) -> Option<u32> {
        let slot = self.table.lock(key);
        let value = self.payload(place(slot.entry())?);
        drop(slot);
        Some(value)
    }

    /// Frees the object of slot 0 and inserts another for slot 1: at the same place, unless that is
    /// being emptied by then.
    fn replace(&self, free: Free) {
        let take_out = || place(self.table.lock(0).replace(Entry::EMPTY)).expect("it is there");
        let from = match free {
            Free::Right => take_out(),
            Free::Early => place(self.table.lock(0).entry()).expect("it is there"),
        };
        let mut heap = self.heap.lock().unwrap();
        heap.taken[from as usize] = false;
        let to = if heap.victim || from != OLD { OTHER } else { OLD };
        heap.taken[to as usize] = true;
        drop(heap);
        self.keys[to as usize].store(1, Ordering::Relaxed);
        self.write(to, 88);
        if free == Free::Early {
            take_out();
        }
        self.table.lock(1).replace(entry(to));
    }

    /// Reserves the new place, holds the slot that the key before the old one names, and moves.
    fn evacuate(&self, try_hold: fn(&SlotTable, u32) -> bool) {
        let mut heap = self.heap.lock().unwrap();
        heap.victim = true;
        heap.taken[NEW as usize] = true;
        let used = heap.taken[OLD as usize];
        drop(heap);
        let mut heap = self.heap.lock().unwrap();
        let key = self.keys[OLD as usize].load(Ordering::Relaxed);
        let held = used && try_hold(&self.table, key);
        if !held {
            heap.taken[NEW as usize] = false;
        }
        drop(heap);
        if held {
            self.write(NEW, self.payload(OLD));
            self.keys[NEW as usize].store(key, Ordering::Relaxed);
            self.table.publish(key, Address::from_bits(NEW));
            self.heap.lock().unwrap().taken[OLD as usize] = false;
        }
    }
}

fn right(table: &SlotTable, key: u32) -> bool {
    table.try_hold(key, Address::from_bits(OLD))
}

fn move_beside(
    other: impl Fn(&World) + Send + Sync + 'static,
    try_hold: fn(&SlotTable, u32) -> bool,
) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let world = World::new();
        let mover = Arc::clone(&world);
        let mover = loom::thread::spawn(move || mover.evacuate(try_hold));
        other(&world);
        mover.join().unwrap();
        let found = [world.load(0), world.load(1)];
        assert!(found == [Some(77), None] || found == [None, Some(88)], "{found:?}");
    });
}

#[test]
fn a_load_sees_the_page_wherever_its_object_was_moved() {
    move_beside(|world| assert_eq!(world.load(0), Some(77)), right);
}

#[test]
fn a_mover_takes_nothing_from_an_object_that_came_in_the_place_of_another() {
    move_beside(|world| world.replace(Free::Right), right);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_twin_that_frees_before_the_entry_has_left_its_slot_is_caught() {
    move_beside(|world| world.replace(Free::Early), right);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_twin_that_believes_the_key_is_caught() {
    move_beside(
        |world| world.replace(Free::Right),
        |table, key| match table.try_lock(key.into()) {
            Some(slot) => {
                std::mem::forget(slot);
                true
            }
            None => false,
        },
    );
}

#[test]
#[should_panic(expected = "[Some(77), Some(88)]")]
fn a_twin_that_looks_at_the_slot_but_does_not_hold_it_is_caught() {
    let looks = |table: &SlotTable, key: u32| {
        right(table, key) && {
            table.publish(key, Address::from_bits(OLD));
            true
        }
    };
    move_beside(|world| world.replace(Free::Right), looks);
}
