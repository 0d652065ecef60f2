//! What the model finds if a step is broken.

use super::super::pages::Page;
use super::{Op, World, play};

/// The model finds a core that does not wait for announced discards.
#[test]
fn a_page_that_is_given_up_must_not_leave() {
    let ops = [
        Op::Map(0, 4),
        Op::Write(1),
        Op::Close(0, 4),
        Op::Discard(0, 4),
        Op::Read,
        Op::Evict(4),
        Op::Zap,
        Op::Look(1),
    ];
    assert_eq!(play(&mut World::default(), &ops), Ok(()));
    let mut twin = World { breaks_doom: true, ..World::default() };
    assert!(play(&mut twin, &ops).is_err(), "old content came back");
}

/// What was announced while an attempt to close failed is not forgotten when the next succeeds.
#[test]
fn a_page_that_is_given_up_while_it_is_open_must_not_leave() {
    let ops = [
        Op::Map(0, 4),
        Op::Write(1),
        Op::Refused(0, 4),
        Op::Read,
        Op::Close(0, 4),
        Op::Evict(4),
        Op::Zap,
        Op::Look(1),
    ];
    assert_eq!(play(&mut World::default(), &ops), Ok(()));
    let mut twin = World { breaks_doom: true, ..World::default() };
    assert!(play(&mut twin, &ops).is_err(), "old content came back");
}

/// The model finds fills and moves that are not held up by messages.
#[test]
fn nothing_moves_while_a_message_is_not_read() {
    let ops = [
        Op::Map(0, 4),
        Op::Write(1),
        Op::Close(0, 4),
        Op::Map(0, 4),
        Op::Write(1),
        Op::Evict(4),
        Op::Read,
        Op::Look(1),
    ];
    assert_eq!(play(&mut World::default(), &ops), Ok(()));
    let twin = World { breaks_order: true, ..World::default() };
    assert!(!sees(twin, &ops, &[]), "a page was lost");
}

/// A range that becomes shorter while it moves takes nothing else along; the model finds a core
/// that believes the length that is reported.
#[test]
fn no_more_moves_than_was_asked_for() {
    let ops = [
        Op::Map(0, 4),
        Op::Map(10, 4),
        Op::Write(3),
        Op::Write(12),
        Op::Close(0, 4),
        Op::Close(10, 4),
        Op::Evict(4),
        Op::Move(0, 4, 9, 2),
        Op::Look(12),
    ];
    assert_eq!(play(&mut World::default(), &ops), Ok(()));
    let twin = World { breaks_length: true, ..World::default() };
    assert!(!sees(twin, &ops, &[]), "a page was lost");
}

/// A page that has left, come back and left again is in the swap cache, and has a copy.
const AGAIN: [Op; 9] = [
    Op::Map(0, 4),
    Op::Write(1),
    Op::Close(0, 4),
    Op::Evict(4),
    Op::Begin(0),
    Op::Store(0),
    Op::Look(1),
    Op::Write(2),
    Op::Evict(4),
];

/// Page 1 leaves, is stored and comes back.
const BACK: [Op; 6] =
    [Op::Evict(4), Op::Begin(0), Op::Begin(0), Op::Store(0), Op::Store(0), Op::Look(1)];

fn sees(world: World, first: &[Op], then: &[Op]) -> bool {
    let ops: Vec<Op> = first.iter().chain(then).cloned().collect();
    let mut world = world;
    let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| play(&mut world, &ops)));
    played.is_ok_and(|played| played.is_ok())
}

/// A page that leaves as it came is its copy; the model finds one that is believed to be, unseen.
#[test]
fn a_copy_is_the_page_only_if_it_is_the_same() {
    let mut world = World::default();
    let ops: Vec<Op> = AGAIN.iter().cloned().chain([Op::Begin(0), Op::Store(0)]).collect();
    ops.iter().try_for_each(|op| world.run(op)).unwrap();
    assert!(matches!(world.space.page(1), Page::Stored(_)));
    assert_eq!((world.space.counts().copied, world.store.len()), (0, 1), "nothing was put there");
    let changed = [&[Op::Look(1), Op::Write(1)][..], &BACK].concat();
    assert!(sees(World::default(), &AGAIN, &changed));
    let twin = World { breaks_compare: true, ..World::default() };
    assert!(!sees(twin, &AGAIN, &changed), "old content came back");
}

/// A mark is a hint (seen/A1): a device accesses a page without clearing it. The model finds a core
/// that believes that what was not accessed has not changed.
#[test]
fn a_copy_is_not_the_page_because_that_has_a_mark() {
    let changed = [&[Op::Look(1), Op::Mark(0, 4), Op::Device(1)][..], &BACK].concat();
    assert!(sees(World::default(), &AGAIN, &changed));
    let twin = World { breaks_marks: true, ..World::default() };
    assert!(!sees(twin, &AGAIN, &changed), "old content came back");
}

/// A copy may go, and its key be that of another page, while it is compared; the model finds a
/// thread that does not ask again.
#[test]
fn a_copy_is_the_page_only_if_it_is_still_its_own() {
    let then = [
        // Page 1, and then page 2, which takes the key that the copy had.
        Op::Begin(0),
        Op::Drop(1),
        Op::Begin(0),
        Op::Store(1),
        Op::Store(0),
        Op::Look(1),
        Op::Look(2),
    ];
    assert!(sees(World::default(), &AGAIN, &then));
    let twin = World { breaks_kept: true, ..World::default() };
    assert!(!sees(twin, &AGAIN, &then), "a page is that of another");
}

/// A page may come, change and leave again while it is loaded, under the same key if that is free;
/// the model finds a load of which nobody knows.
#[test]
fn what_is_read_from_the_store_is_not_given_up_meanwhile() {
    let first = &AGAIN[..6];
    let then = [
        Op::Load(1),
        Op::Look(1),
        Op::Drop(1),
        Op::Write(1),
        Op::Evict(4),
        Op::Begin(0),
        Op::Store(0),
        Op::Loaded(0),
        Op::Look(1),
    ];
    assert!(sees(World::default(), first, &then));
    let twin = World { breaks_load: true, ..World::default() };
    assert!(!sees(twin, first, &then), "old content came back");
}

/// Pages that are all hot leave nevertheless; the model finds a hand that spares them for as long
/// as they are.
#[test]
fn a_page_is_found_however_hot_all_are() {
    let again = [Op::Look(1), Op::Evict(4)];
    let ops: Vec<Op> = [Op::Map(0, 4), Op::Write(1), Op::Close(0, 4), Op::Evict(4)]
        .into_iter()
        .chain(again.iter().cycle().take(12).cloned())
        .collect();
    assert_eq!(play(&mut World::default(), &ops), Ok(()));
    let mut twin = World { breaks_haste: true, ..World::default() };
    assert!(play(&mut twin, &ops).is_err(), "the run stops");
}
