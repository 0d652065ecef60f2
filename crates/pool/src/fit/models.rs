//! Models of shard/G1 under every interleaving: a mover, which finds a cell by a header, beside a
//! free and an insertion that may use the freed place anew. The twins break one step of the mover,
//! and loom must catch them.
//!
//! Of the heap the models have what matters: which places are taken, under the lock, and that
//! nothing is taken in a victim (heap/F3).

use loom::sync::Arc;

use super::place::{Cell, Place};
use crate::sync::UnsafeCell;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::spin::SpinLock;

/// A place in the segment to be evacuated, one in another, and the one reserved for the move.
const OLD: Place = place(0);
const OTHER: Place = place(1);
const NEW: Place = place(2);

const fn place(segment: u32) -> Place {
    Place { segment, at: 0 }
}

/// What the lock guards.
#[derive(Debug)]
struct Heap {
    taken: [bool; 3],
    victim: bool,
}

/// Two cells and three places; at first the object of cell 0 is at the old place.
struct World {
    heap: SpinLock<Heap>,
    cells: [Cell; 2],
    headers: [AtomicU32; 3],
    payloads: [UnsafeCell<u32>; 3],
}

impl World {
    fn new() -> Arc<Self> {
        let world = Self {
            heap: SpinLock::new(Heap { taken: [true, false, false], victim: false }),
            cells: [Cell::new(), Cell::new()],
            headers: [0, 0, 0].map(AtomicU32::new),
            payloads: [77, 0, 0].map(UnsafeCell::new),
        };
        world.cells[0].begin(5, 4, OLD);
        world.cells[0].publish(OLD);
        Arc::new(world)
    }

    fn header(&self, place: Place) -> &AtomicU32 {
        &self.headers[place.segment as usize]
    }

    fn payload(&self, place: Place) -> u32 {
        // SAFETY: none but the protocol's: this is what the model checks.
        self.payloads[place.segment as usize].with(|payload| unsafe { *payload })
    }

    fn write(&self, place: Place, value: u32) {
        // SAFETY: as in `payload`.
        self.payloads[place.segment as usize].with_mut(|payload| unsafe { *payload = value });
    }

    fn read(&self, cell: usize, serial: u32) -> Option<u32> {
        let place = self.cells[cell].pin(serial).ok()?;
        let value = self.payload(place);
        self.cells[cell].unpin();
        Some(value)
    }

    /// Frees the object of cell 0 and inserts another under cell 1: at the same place, unless
    /// the segment is a victim by then.
    fn replace(&self) {
        let from = self.cells[0].hold(5).expect("live and not pinned");
        let mut heap = self.heap.lock().unwrap();
        heap.taken[from.segment as usize] = false;
        self.cells[0].clear();
        let to = if heap.victim || from != OLD { OTHER } else { OLD };
        heap.taken[to.segment as usize] = true;
        self.cells[1].begin(6, 4, to);
        drop(heap);
        self.write(to, 88);
        self.header(to).store(1, Ordering::Relaxed);
        self.cells[1].publish(to);
    }

    /// Reserves the new place, claims what the old one's header says, and moves it.
    fn evacuate(&self, claim: fn(&Cell) -> bool) {
        let mut heap = self.heap.lock().unwrap();
        heap.victim = true;
        let used = std::mem::replace(&mut heap.taken[NEW.segment as usize], true) | heap.taken[0];
        drop(heap);
        let mut heap = self.heap.lock().unwrap();
        let index = self.header(OLD).load(Ordering::Relaxed);
        let cell = &self.cells[index as usize];
        let claimed = used && claim(cell);
        if !claimed {
            heap.taken[NEW.segment as usize] = false;
        }
        drop(heap);
        if claimed {
            self.write(NEW, self.payload(OLD));
            self.header(NEW).store(index, Ordering::Relaxed);
            cell.publish(NEW);
            self.heap.lock().unwrap().taken[OLD.segment as usize] = false;
        }
    }
}

fn move_beside(other: fn(&World), claim: fn(&Cell) -> bool) -> impl Fn() + Send + Sync {
    move || {
        let world = World::new();
        let mover = Arc::clone(&world);
        let mover = loom::thread::spawn(move || mover.evacuate(claim));
        other(&world);
        mover.join().unwrap();
        let found = [world.read(0, 5), world.read(1, 6)];
        assert!(found == [Some(77), None] || found == [None, Some(88)], "{found:?}");
    }
}

#[test]
fn a_mover_takes_nothing_from_an_object_that_came_in_the_place_of_another() {
    loom::model(move_beside(World::replace, |cell| cell.try_hold_at(OLD)));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_twin_that_believes_the_header_is_caught() {
    loom::model(move_beside(World::replace, |_| true));
}

#[test]
#[should_panic(expected = "[Some(77), Some(88)]")]
fn a_twin_that_looks_at_the_cell_but_does_not_hold_it_is_caught() {
    loom::model(move_beside(World::replace, |cell| {
        cell.live_serial().is_some() && cell.place() == OLD
    }));
}

#[test]
fn a_mover_leaves_what_is_read_and_a_reader_sees_what_was_moved() {
    let read = |world: &World| assert_eq!(world.read(0, 5), Some(77));
    loom::model(move_beside(read, |cell| cell.try_hold_at(OLD)));
}
