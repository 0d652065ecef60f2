//! Fields and states of a cell.

use super::*;
use proptest::prelude::*;

fn cell() -> Cell {
    Cell { word: AtomicU64::new(0), tag: AtomicU64::new(0) }
}

proptest! {
    #[test]
    fn fields_come_back(
        class in 0..256_usize,
        zspage in 0..1_u32 << 28,
        object in 0..4096_u32,
        slack in 0..1_usize << 16,
        serial in any::<u32>(),
    ) {
        let (cell, place) = (cell(), Place { class, zspage, object });
        cell.begin(serial, slack, place);
        prop_assert_eq!((cell.place(), cell.slack()), (place, slack));
        prop_assert_eq!(cell.live_serial(), None);
        cell.publish(place);
        prop_assert_eq!(cell.live_serial(), Some(serial));
        prop_assert_eq!(cell.pin(serial), Ok(place));
        cell.unpin();
        let moved = Place { zspage: zspage ^ 1, object: object ^ 1, ..place };
        prop_assert!(!cell.try_hold(serial, moved) && cell.try_hold(serial, place));
        cell.publish(moved);
        prop_assert_eq!(cell.hold(serial), Ok(moved));
        cell.retire(zspage);
        let going = (cell.place(), cell.slack(), cell.next_going());
        prop_assert_eq!(going, (moved, slack, zspage));
        prop_assert_eq!(cell.pin(serial), Err(HandleError::Stale));
        cell.set_free(zspage);
        prop_assert!(!cell.is_live());
        prop_assert_eq!(cell.next_free(), zspage);
    }
}

#[test]
fn pins_keep_writers_away_and_are_counted_up_to_their_limit() {
    let (cell, place) = (cell(), Place { class: 3, zspage: 9, object: 2 });
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
