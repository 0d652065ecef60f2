//! Which pages are touched, where the kernel tells it.

use super::*;
use crate::seen::Looks;

const LIMIT: usize = 16 * MIB;

/// Returns a world whose accesses are seen.
fn seeing() -> Option<World> {
    if !sees_accesses() {
        zfold_testing::skip("accesses of pages are not seen (Linux 7.3)");
        return None;
    }
    World::new(LIMIT)
}

#[test]
fn what_is_touched_is_counted_and_contents_stay() {
    let Some(world) = seeing() else { return };
    let memory = world.map(40 * MIB);
    pages(&memory).for_each(|page| fill(page, 1));
    let shared = &world.engine.shared;
    let mut looks = Looks::new(shared);
    let first = looks.look(shared).expect("memory is closed");
    assert!(first.touched_10s_bytes > 0, "what is there is new");
    for round in 0..30 {
        // Another part in each third round; none of what stays is read for the test.
        let part =
            memory.start + round / 3 % 4 * 8 * MIB..memory.start + (round / 3 % 4 + 1) * 8 * MIB;
        pages(&part).for_each(|page| verify(page, 1));
        let touched = looks.look(shared).expect("as before");
        assert_eq!(touched.touched_10s_error_bytes, 0, "all of it is looked at");
        if round % 3 == 2 {
            // What is open has been touched.
            let open = world.engine.space(world.space).open() * page_len();
            let seen = touched.touched_10s_bytes as usize - open;
            // Some come along with others.
            assert!((8 * MIB..9 * MIB).contains(&seen), "{seen} in round {round}: {touched:?}");
        }
    }
    // Whatever is marked, it is what it was (seen/A1).
    pages(&memory).for_each(|page| verify(page, 1));
}

/// A huge page has one mark, whichever of its parts is looked at first.
#[test]
fn a_sample_of_huge_pages_finds_what_is_touched() {
    let Some(world) = seeing() else { return };
    for advice in [libc::MADV_NOHUGEPAGE, libc::MADV_HUGEPAGE] {
        let memory = world.unwatched(6 * MIB);
        world.discard(&memory, advice);
        pages(&memory).for_each(|page| fill(page, 1));
        world.request(Request::Mapped { range: memory.clone() });
        let shared = &world.engine.shared;
        let mut looks = Looks::at_few(shared, 1);
        (0..3).for_each(|_| _ = looks.look(shared));
        let mut touched = || looks.look(shared).expect("memory is closed");
        assert_eq!(touched().touched_10s_bytes, 0, "{advice}");
        pages(&memory).for_each(|page| verify(page, 1));
        let all = touched();
        assert_eq!((all.touched_10s_bytes, all.touched_10s_error_bytes), (6 * MIB as u64, 0));
        pages(&memory).for_each(|page| verify(page, 1));
        world.unmap(&memory);
    }
}

#[test]
fn what_cannot_be_marked_counts_as_touched_and_the_rest_is_seen() {
    let Some(world) = seeing() else { return };
    let memory = world.unwatched(8 * MIB);
    pages(&memory).for_each(|page| fill(page, 1));
    let guard = memory.start + 4 * MIB..memory.start + 4 * MIB + 16 * page_len();
    sys::protect_as(&guard, libc::PROT_NONE);
    world.request(Request::Mapped { range: memory.clone() });
    let closed = world.engine.space(world.space).lock().closed().clone();
    assert!(closed.touches(&pages_of(&guard)), "it is closed with its neighbours");
    let shared = &world.engine.shared;
    let mut looks = Looks::new(shared);
    (0..3).for_each(|_| _ = looks.look(shared));
    let touched = looks.look(shared).expect("memory is closed").touched_10s_bytes as usize;
    let open = world.engine.space(world.space).open() * page_len();
    // Parts in which there is such a page count as a whole.
    assert!((guard.len()..MIB).contains(&(touched - open)), "{touched}, {open}");
    sys::protect(&guard, true);
    pages(&memory).for_each(|page| verify(page, 1));
    // It can be accessed now, and is registered anew.
    (0..3).for_each(|_| _ = looks.look(shared));
    let touched = looks.look(shared).expect("memory is closed").touched_10s_bytes as usize;
    assert_eq!(touched, world.engine.space(world.space).open() * page_len());
    pages(&memory).for_each(|page| verify(page, 1));
}

#[test]
fn no_memory_that_zfold_reads_through_has_marks() {
    let Some(world) = seeing() else { return };
    let memory = world.map(2 * LIMIT);
    let mark = |range: &Range<usize>| {
        let managed = world.engine.space(world.space);
        managed.access().unwrap().watch(&pages_of(range))
    };
    let staging = world.staging.start..world.staging.start + page_len();
    pages(&memory).for_each(|page| fill(page, 1));
    let _ = Looks::new(&world.engine.shared).look(&world.engine.shared);
    assert!(mark(&staging).is_err(), "seen/A4");
    mark(&(memory.start..memory.start + page_len())).unwrap();
    // The twin: a staging like any other memory of the program.
    let managed = world.engine.space(world.space);
    let twin = pages_of(&staging);
    let pid = std::process::id() as i32;
    // No page leaves meanwhile, and none is in the staging: an event of that would have to be read.
    let helper = managed.helper();
    let space = managed.lock();
    managed.access().unwrap().register(pid, &twin).unwrap();
    mark(&staging).expect("the twin is caught");
    managed.access().unwrap().unregister(&twin).unwrap();
    drop((space, helper));
    pages(&memory).for_each(|page| verify(page, 1));
}

/// What the program opens or gives up has no marks, and to ask for them is no mistake (seen/A5).
#[test]
fn what_is_open_again_has_no_marks() {
    let Some(world) = seeing() else { return };
    let memory = world.map(4 * MIB);
    pages(&memory).for_each(|page| fill(page, 1));
    let shared = &world.engine.shared;
    let mut looks = Looks::new(shared);
    let _ = looks.look(shared);
    world.request(Request::Open { range: memory.clone() });
    let access = |range: &Range<usize>| {
        world.engine.space(world.space).access().unwrap().watch(&pages_of(range))
    };
    assert!(access(&memory).is_err());
    assert!(looks.look(shared).is_some(), "it goes on");
    pages(&memory).for_each(|page| verify(page, 1));
    world.unmap(&memory);
    assert!(access(&memory).is_err());
}
