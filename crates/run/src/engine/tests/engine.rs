//! What a program sees, and what the limit holds, while its memory leaves and comes back.

use std::time::Instant;

use super::*;
use crate::core::space::ZEROS_BYTES;
use crate::faults::answer::enter;
use crate::limit::close::{Open, close, close_open, close_slices, look};
use crate::spaces::mailbox::Fault;
use zfold_uffd::page::pages_in;

#[test]
fn pages_leave_and_come_back_and_the_limit_holds() {
    let Some(world) = World::new(8 * MIB) else { return };
    let memory = world.map(32 * MIB);
    for page in pages(&memory) {
        fill(page, 1);
        if page % (64 * page_len()) == 0 {
            assert!(world.resident() <= 8 * MIB, "{} resident", world.resident());
        }
    }
    for round in 1..4 {
        for page in pages(&memory) {
            verify(page, round);
            fill(page, round + 1);
        }
    }
    assert!(world.resident() <= 8 * MIB);
    let before = world.stats();
    pages(&memory).rev().for_each(|page| verify(page, 4));
    let stats = world.stats();
    let loads = stats.loads_total - before.loads_total;
    let along = stats.prefetched_total - before.prefetched_total;
    assert!(loads > 0 && along > 4 * loads, "downwards: {loads} loads, {along} pages with them");
    assert_eq!(stats.over_limit_total, 0, "{stats:?}");
    let loaded = stats.loads_total + stats.prefetched_total;
    let all = (memory.len() / page_len()) as u64;
    assert!(loaded > all * 5 / 4 && stats.prefetched_total > 0, "{stats:?}");
    assert!(stats.stored_bytes < 16 * MIB as u64, "compressed: {stats:?}");
}

#[test]
fn pages_that_left_lately_come_back_from_the_buffer() {
    let Some(world) = World::new(8 * MIB) else { return };
    let memory = world.map(12 * MIB);
    pages(&memory).for_each(|page| fill(page, 0));
    // The hand goes in the order of addresses: what it took last is right before it. What is
    // written to has no copy, for which it would be dropped at once.
    for round in 0..20 {
        pages(&memory).rev().for_each(|page| {
            verify(page, round);
            fill(page, round + 1);
        });
    }
    let stats = world.stats();
    assert!(stats.refaults_total > 0, "{stats:?}");
}

#[test]
fn memory_never_touched_is_zeros_and_is_not_kept() {
    let Some(world) = World::new(4 * MIB) else { return };
    let memory = world.map(64 * MIB);
    for page in pages(&memory) {
        assert_eq!(sys::get(page), 0);
    }
    let stats = world.stats();
    let all = (memory.len() / page_len()) as u64;
    assert!(stats.zero_pages_total > all * 5 / 8, "{stats:?}");
    assert_eq!(stats.stores_total, 0, "{stats:?}");
    let windows = all / stats.first_touches_total.max(1);
    assert!(windows > pages_in(ZEROS_BYTES) as u64 * 15 / 32, "sequential: {stats:?}");
}

#[test]
fn discarded_pages_are_zeros_wherever_they_were() {
    let Some((world, memory)) = World::filled(4 * MIB, 16 * MIB) else { return };
    let half = memory.start + 2 * MIB..memory.start + 14 * MIB;
    world.discard(&half, libc::MADV_DONTNEED);
    // Whoever reads the message releases them.
    let others = ((memory.len() - half.len()) / page_len()) as u64;
    while world.stats().stored_pages > others {
        std::thread::yield_now();
    }
    verify_but(&memory, &half, 1);
}

#[test]
fn pages_marked_as_free_are_old_or_zeros_and_stay_accounted() {
    // What is given up stays until no thread is in a call: those of other tests may be for long.
    let Some(world) = World::alone(4 * MIB) else { return };
    let memory = world.map(8 * MIB);
    pages(&memory).for_each(|page| fill(page, 1));
    world.discard(&memory, libc::MADV_FREE);
    for page in pages(&memory) {
        if sys::get(page) != 0 {
            verify(page, 1);
        }
        fill(page, 2);
        if page % (256 * page_len()) == 0 {
            let resident = world.resident();
            assert!(resident <= 4 * MIB, "{resident} at {page:#x}: {:?}", world.stats());
        }
    }
    pages(&memory).for_each(|page| verify(page, 2));
}

#[test]
fn unmapped_memory_is_released_and_its_addresses_are_new() {
    let Some(world) = World::new(4 * MIB) else { return };
    for round in 1..6 {
        let memory = world.map_at(world.window.start, 16 * MIB);
        for page in pages(&memory) {
            assert_eq!(sys::get(page), 0);
            fill(page, round);
        }
        pages(&memory).for_each(|page| verify(page, round));
        world.unmap(&memory);
        world.wait_until_released();
    }
    assert!(world.stats().resident_bytes <= MIB as u64, "{:?}", world.stats());
}

/// It would be moved out, and nobody would ask for it again.
#[test]
fn what_is_mapped_while_it_is_closed_is_not_taken_for_registered() {
    let Some(world) = World::new(8 * MIB) else { return };
    let memory = world.window.start..world.window.start + 16 * page_len();
    let again = memory.start + 8 * page_len()..memory.end;
    let managed = world.engine.space(world.space);
    let access = managed.access().expect("attached");
    let whole = pages_of(&memory);

    let held = managed.lock();
    assert!(sys::map(memory.start, memory.len(), true) > 0);
    assert_eq!(sys::unmap(&again), 0);
    access.register(std::process::id() as i32, &whole).unwrap();
    assert_eq!(look(&managed, access, &whole), Err(Open::Other));
    assert!(sys::map(again.start, again.len(), true) > 0);
    fill(again.start, 1);
    assert_eq!(look(&managed, access, &whole), Err(Open::Other));
    access.register(std::process::id() as i32, &whole).unwrap();
    let present = look(&managed, access, &whole).unwrap();
    assert!(present.around(again.start / page_len()).is_some());
    access.unregister(&whole).unwrap();
    drop(held);

    world.request(Request::Mapped { range: memory.clone() });
    assert_eq!(managed.lock().closed().within(&whole), [whole]);
    verify(again.start, 1);
}

/// Each would count, and those where nothing can be touched could never leave.
#[test]
fn mappings_that_are_closed_together_get_no_pages() {
    let Some(world) = World::new(8 * MIB) else { return };
    let memory = world.window.start..world.window.start + 512 * page_len();
    assert!(sys::map(memory.start, memory.len(), false) > 0);
    for at in memory.clone().step_by(16 * page_len()) {
        sys::protect(&(at..at + 5 * page_len()), true);
    }
    sys::put(memory.start, 7);
    world.request(Request::Mapped { range: memory.clone() });
    let managed = world.engine.space(world.space);
    let whole = pages_of(&memory);
    assert_eq!(managed.lock().closed().within(&whole), [whole]);
    assert_eq!((world.resident(), managed.lock().counts().present), (page_len(), 1));
    assert_eq!(sys::get(memory.start), 7);
}

/// A mapping of which pieces were mapped anew, thousands of them, is closed by one call.
#[test]
fn the_rest_of_what_is_closed_in_part_is_closed_at_once() {
    let Some((world, memory)) = World::filled(8 * MIB, 256 * page_len()) else { return };
    world.page_out(&memory);
    let anew: Vec<_> = pages(&memory).step_by(2).collect();
    for &page in &anew {
        assert_eq!(sys::map(page, page_len(), true), page as i64);
        fill(page, 2);
    }
    let managed = world.engine.space(world.space);
    let whole = pages_of(&memory);
    world.request(Request::PageOut { range: 0..page_len() });
    assert_eq!(managed.lock().closed().without(&whole).len(), anew.len());
    assert!(close(&world.engine.shared, &managed, &whole, 0));
    assert_eq!(managed.lock().closed().within(&whole), [whole]);
    for page in pages(&memory) {
        verify(page, if anew.contains(&page) { 2 } else { 1 });
    }
    world.page_out(&memory);
    anew.iter().for_each(|&page| verify(page, 2));
}

#[test]
fn a_heap_that_grows_by_more_than_there_is_room_for_is_closed() {
    let Some(world) = World::new(4 * MIB) else { return };
    let memory = world.window.start..world.window.start + 8 * MIB;
    let managed = world.engine.space(world.space);
    let grow = |to: usize| {
        let from = memory.start + to / 2;
        assert_eq!(sys::map(from, memory.start + to - from, true), from as i64);
        world.request(Request::Grown { end: memory.start + to - 9 });
    };
    grow(2 * MIB);
    assert!(!managed.lock().closed().touches(&pages_of(&memory)), "there is room");
    assert_eq!(sys::map(memory.start, MIB, true), memory.start as i64);
    sys::put(memory.start, 7);
    grow(8 * MIB);
    let closed = managed.lock().closed().around(memory.end / page_len() - 1);
    assert!(closed.is_some_and(|closed| closed.len() >= 4 * MIB / page_len()));
    assert_eq!((sys::get(memory.start), sys::get(memory.end - 8)), (7, 0));
}

#[test]
fn a_mapping_that_is_gone_keeps_no_other_open() {
    let Some(world) = World::new(8 * MIB) else { return };
    let memory = world.window.start..world.window.start + 48 * page_len();
    let gone = memory.start + 16 * page_len()..memory.start + 32 * page_len();
    assert!(sys::map(memory.start, memory.len(), true) > 0);
    fill(memory.start, 1);
    world.unmap(&gone);
    let managed = world.engine.space(world.space);
    let whole = pages_of(&memory);
    close_slices(&world.engine.shared, &managed, &whole);
    let parts = [whole.start..whole.start + 16, whole.end - 16..whole.end];
    assert_eq!(managed.lock().closed().within(&whole), parts);
    verify(memory.start, 1);
}

/// Linux 6.12 reports the length that the range had before.
#[test]
fn what_shrinks_while_it_moves_takes_nothing_else_along() {
    let Some(world) = World::new(4 * MIB) else { return };
    let memory = world.map(16 * MIB);
    number(&memory);
    let there = memory.start + 4 * MIB;
    let shrunk = world.remap(&(memory.start..memory.start + 2 * MIB), there, MIB, false);
    for (at, page) in pages(&memory).enumerate().skip(2 * MIB / page_len()) {
        let moved = if shrunk.contains(&page) { there - memory.start } else { 0 };
        assert_eq!(sys::get(page), (at - moved / page_len()) as u64 + 1, "page {at}");
    }
}

#[test]
fn moved_memory_keeps_its_content() {
    let Some(world) = World::new(4 * MIB) else { return };
    let memory = world.map(16 * MIB);
    number(&memory);
    let there = world.window.start + (1 << 31);
    let grown = world.remap(&memory, there, 24 * MIB, false);
    let added = grown.start + 16 * MIB..grown.end;
    verify_numbers(&(grown.start..added.start), 1);
    pages(&added).for_each(|page| assert_eq!(sys::get(page), 0));
    let shrunk = world.remap(&grown, memory.start, 8 * MIB, false);
    verify_numbers(&shrunk, 1);
    let moved = world.remap(&shrunk, there, 8 * MIB, true);
    verify_numbers(&moved, 1);
    for page in pages(&shrunk) {
        assert_eq!(sys::get(page), 0, "it stays, empty");
        sys::put(page, 5);
    }
    pages(&shrunk).for_each(|page| assert_eq!(sys::get(page), 5));
    assert!(world.resident() <= 4 * MIB);
}

#[test]
fn read_only_pages_stay_and_leave_when_they_are_writable_again() {
    let Some((world, memory)) = World::filled(4 * MIB, 8 * MIB) else { return };
    let fixed = memory.start..memory.start + MIB;
    pages(&fixed).for_each(|page| verify(page, 1));
    sys::protect(&fixed, false);
    for _ in 0..4 {
        pages(&memory).for_each(|page| verify(page, 1));
    }
    assert!(world.stats().busy_pages_total > 0, "{:?}", world.stats());
    sys::protect(&fixed, true);
    pages(&fixed).for_each(|page| fill(page, 2));
    for _ in 0..6 {
        for page in pages(&memory) {
            verify(page, if fixed.contains(&page) { 2 } else { 1 });
        }
    }
    assert!(world.resident() <= 4 * MIB);
}

#[test]
fn what_is_gone_leaves_nothing() {
    let Some((world, memory)) = World::filled(4 * MIB, 32 * MIB) else { return };
    assert!(world.stats().stored_pages > (memory.len() / page_len()) as u64 / 2);
    world.engine.gone(world.space);
    world.wait_until_released();
    let stats = world.stats();
    assert_eq!((stats.stored_pages, stats.spaces), (0, 0), "{stats:?}");
}

#[test]
fn a_process_that_has_ended_is_not_named_as_unmanaged() {
    let world = World::unattached(4 * MIB, Resting::together());
    let mut ended = std::process::Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let ended = world.engine.exec(ended.id().cast_signed());
    world.engine.cannot_attach(ended, "its mappings cannot be read".to_owned());
    assert_eq!((world.stats().unmanaged_total, world.engine.newly_unmanaged().len()), (0, 0));
    world.engine.cannot_attach(world.space, "for a test".to_owned());
    assert_eq!((world.stats().unmanaged_total, world.engine.newly_unmanaged().len()), (1, 1));
    world.engine.gone(ended);
}

#[test]
fn what_the_program_wants_for_itself_comes_back_and_stays() {
    let Some((world, memory)) = World::filled(4 * MIB, 12 * MIB) else { return };
    let own = memory.start + MIB..memory.start + 3 * MIB;
    world.request(Request::Open { range: own.clone() });
    let there = |range: &Range<usize>| -> usize {
        world.map.present(range).unwrap().iter().map(ExactSizeIterator::len).sum()
    };
    // A thread of a busy machine may take long to make its call: whoever looks finds it open.
    let managed = world.engine.space(world.space);
    let survey = || {
        *lock(&managed.next_look_at_own) = None;
        close_open(&world.engine.shared, &managed);
        !managed.lock().closed().touches(&pages_of(&own))
    };
    assert!(survey(), "before the call");
    assert_eq!(sys::advise(&own, crate::sys::seccomp::WIPE_ON_FORK), 0);
    world.request(Request::Opened);
    assert!(survey(), "after it");
    assert_eq!(there(&own), own.len(), "all of it is there");
    for round in 1..4 {
        pages(&memory).for_each(|page| verify(page, round));
        pages(&memory).for_each(|page| fill(page, round + 1));
        assert_eq!(there(&own), own.len(), "and stays");
    }
}

#[test]
fn a_page_out_leaves_nothing_and_loses_nothing() {
    let Some((world, memory)) = World::filled(64 * MIB, 8 * MIB) else { return };
    let before = world.resident();
    assert!(before >= 8 * MIB);
    world.page_out(&memory);
    assert_eq!(world.resident(), 0);
    assert!(world.stats().stores_total >= (8 * MIB / page_len()) as u64, "{:?}", world.stats());
    pages(&memory).for_each(|page| verify(page, 1));
}

#[test]
fn whoever_enters_a_space_answers_what_others_have_read() {
    let Some(world) = World::new(8 * MIB) else { return };
    let memory = world.map(16 * page_len());
    let managed = world.engine.space(world.space);
    for page in pages_of(&memory) {
        let since = Instant::now();
        managed.faults.add(Fault { page, thread: 1, writes: true, free: false, since });
    }
    enter(&world.engine.shared, &managed, |_| ());
    assert!(managed.faults.take().is_none());
    assert_eq!(world.there(&memory).len(), 16);
}
