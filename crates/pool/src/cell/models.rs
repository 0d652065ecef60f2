//! Models of H1 and H2 under every interleaving: a reader against a move, and a free against a
//! read and a move. Each has a twin with a broken step that loom must catch.

use super::*;
use crate::sync::UnsafeCell;
use loom::sync::Arc;

const A: usize = 1;
const B: usize = 2;

impl Spot for usize {
    fn pack(self) -> u64 {
        self as u64
    }
    fn unpack(word: u64) -> Self {
        SPOT.get(word) as Self
    }
}

/// A cell and the two places that its object may be at.
struct World {
    cell: Cell<usize>,
    at: [UnsafeCell<u32>; 3],
}

impl World {
    fn new() -> Arc<Self> {
        let at = [0, 77, 0].map(UnsafeCell::new);
        let world = Self { cell: Cell::new(), at };
        world.cell.begin(5, 0, A);
        world.cell.publish(A);
        Arc::new(world)
    }

    fn write(&self, place: usize, value: u32) {
        // SAFETY: none but the protocol's: this is what the model checks.
        self.at[place].with_mut(|bytes| unsafe { *bytes = value });
    }

    fn bytes(&self, place: usize) -> u32 {
        // SAFETY: as in `write`.
        self.at[place].with(|bytes| unsafe { *bytes })
    }

    fn read(&self) -> Result<u32, HandleError> {
        let place = self.cell.pin(5)?;
        let value = self.bytes(place);
        self.cell.unpin();
        Ok(value)
    }

    /// Moves the object from A to B and scribbles over A, as its next owner would.
    fn move_object(&self) {
        if self.cell.try_hold(5, A) {
            self.write(B, self.bytes(A));
            self.cell.publish(B);
            self.write(A, 0);
        }
    }

    /// Frees the object; its place is scribbled over.
    fn free(&self) -> Result<(), HandleError> {
        let place = self.cell.hold(5)?;
        self.cell.retire(0);
        self.write(place, 0);
        self.cell.clear();
        Ok(())
    }
}

#[test]
fn a_reader_sees_the_object_wherever_it_was_moved() {
    loom::model(|| {
        let world = World::new();
        let mover = Arc::clone(&world);
        let mover = loom::thread::spawn(move || mover.move_object());
        assert_eq!(world.read(), Ok(77));
        mover.join().unwrap();
        assert_eq!(world.read(), Ok(77));
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_twin_whose_move_does_not_hold_the_cell_is_caught() {
    loom::model(|| {
        let world = World::new();
        let mover = Arc::clone(&world);
        let mover = loom::thread::spawn(move || {
            mover.write(B, mover.bytes(A));
            mover.cell.publish(B);
            mover.write(A, 0);
        });
        let _ = world.read();
        mover.join().unwrap();
    });
}

/// Runs a free beside `other`.
fn free_beside(other: fn(&World)) {
    loom::model(move || {
        let world = World::new();
        let freer = Arc::clone(&world);
        let freer = loom::thread::spawn(move || freer.free());
        other(&world);
        match freer.join().unwrap() {
            Ok(()) => assert_eq!(world.read(), Err(HandleError::Stale)),
            Err(error) => assert_eq!(error, HandleError::Busy),
        }
    });
}

#[test]
fn a_free_waits_for_no_reader_and_takes_nothing_from_one() {
    free_beside(|world| {
        let read = world.read();
        assert!(read == Ok(77) || read == Err(HandleError::Stale), "{read:?}");
    });
}

#[test]
fn a_free_finds_the_object_wherever_it_was_moved() {
    free_beside(World::move_object);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_twin_that_unpins_without_release_is_caught() {
    loom::model(|| {
        let world = World::new();
        let freer = Arc::clone(&world);
        let freer = loom::thread::spawn(move || freer.free());
        if let Ok(place) = world.cell.pin(5) {
            world.bytes(place);
            world.cell.word.fetch_sub(ONE_PIN, Ordering::Relaxed);
        }
        let _ = freer.join().unwrap();
    });
}

#[test]
fn two_frees_of_one_object_free_it_once() {
    loom::model(|| {
        let world = World::new();
        let other = Arc::clone(&world);
        let other = loom::thread::spawn(move || other.free().is_ok());
        let own = world.free().is_ok();
        assert!(own ^ other.join().unwrap(), "freed twice or not at all");
    });
}

#[test]
#[should_panic(expected = "freed twice")]
fn a_twin_that_checks_and_then_retires_is_caught() {
    loom::model(|| {
        let world = World::new();
        let check_then_act = |world: &World| {
            let live = world.cell.is_live();
            if live {
                world.cell.clear();
            }
            live
        };
        let other = Arc::clone(&world);
        let other = loom::thread::spawn(move || check_then_act(&other));
        let own = check_then_act(&world);
        assert!(own ^ other.join().unwrap(), "freed twice");
    });
}
