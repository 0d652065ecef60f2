//! Fields and states of a cell.

use super::*;
use proptest::prelude::*;

impl Spot for u64 {
    fn pack(self) -> u64 {
        self
    }
    fn unpack(word: u64) -> Self {
        SPOT.get(word)
    }
}

proptest! {
    #[test]
    fn fields_come_back(
        place in 0..1_u64 << SPOT.end(),
        len in 0..1_usize << 20,
        serial in any::<u32>(),
        next in any::<u32>(),
    ) {
        let cell = Cell::new();
        cell.begin(serial, len, place);
        prop_assert_eq!((cell.place(), cell.len()), (place, len));
        prop_assert_eq!(cell.live_serial(), None);
        prop_assert!(!cell.try_hold_at(place));
        cell.publish(place);
        prop_assert_eq!(cell.live_serial(), Some(serial));
        prop_assert_eq!(cell.pin(serial), Ok(place));
        cell.unpin();
        let moved = place ^ 1;
        prop_assert!(!cell.try_hold(serial, moved) && cell.try_hold(serial, place));
        cell.publish(moved);
        prop_assert!(!cell.try_hold(serial ^ 1, moved) && !cell.try_hold_at(place));
        prop_assert_eq!(cell.hold(serial), Ok(moved));
        cell.retire(next);
        prop_assert_eq!((cell.place(), cell.len(), cell.next_going()), (moved, len, next));
        prop_assert_eq!(cell.pin(serial), Err(HandleError::Stale));
        cell.set_free(next);
        prop_assert!(!cell.is_live());
        prop_assert_eq!(cell.next_free(), next);
    }
}

#[test]
fn pins_keep_writers_away_and_are_counted_up_to_their_limit() {
    let (cell, place) = (Cell::new(), 77_u64);
    cell.begin(7, 0, place);
    cell.publish(place);
    assert_eq!(cell.pin(8), Err(HandleError::Stale));
    for _ in 0..PINS.mask() {
        assert_eq!(cell.pin(7), Ok(place));
    }
    assert_eq!(cell.pin(7), Err(HandleError::Busy));
    assert_eq!(cell.hold(7), Err(HandleError::Busy));
    assert!(!cell.try_hold(7, place));
    for _ in 0..PINS.mask() {
        cell.unpin();
    }
    assert_eq!(cell.hold(7), Ok(place));
}
