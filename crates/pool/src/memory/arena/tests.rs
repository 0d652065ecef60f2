//! Runs, their reuse and their release.

use super::*;
use crate::memory::source::PageSource;
use crate::testing::{FailingPages, HeapPages};

fn arena(pages: usize) -> Arena {
    let range = HeapPages.reserve(pages * 4096).unwrap();
    Arena::new(range, PageSize::KIB4)
}

fn take(arena: &mut Arena, pages: u32) -> Result<Run, SourceError> {
    let mut run = arena.take(pages)?;
    arena.commit(&mut run, pages).inspect_err(|_| arena.put(run, pages))?;
    Ok(run)
}

#[test]
fn runs_are_reused_by_length() {
    let mut arena = arena(64);
    let (a, b) = (take(&mut arena, 3).unwrap(), take(&mut arena, 2).unwrap());
    arena.put(a, 3);
    arena.put(b, 2);
    assert_eq!(arena.take(2), Ok(b));
    assert_eq!(arena.take(3), Ok(a));
    assert_eq!((arena.used(), arena.warm()), (PageCount(5), PageCount(0)));
    arena.check();
}

#[test]
fn only_committed_pages_count() {
    let mut arena = arena(64);
    let mut run = arena.take(8).unwrap();
    assert_eq!(arena.used(), PageCount(0));
    arena.commit(&mut run, 3).unwrap();
    assert_eq!((run.committed, arena.used()), (3, PageCount(3)));
    arena.commit(&mut run, 2).unwrap();
    assert_eq!(arena.used(), PageCount(3));
    arena.put(run, 8);
    assert_eq!((arena.used(), arena.warm()), (PageCount(0), PageCount(3)));
    assert_eq!(arena.take(8).unwrap().committed, 3, "a warm run keeps what it has");
    assert_eq!(arena.used(), PageCount(3));
    arena.check();
}

#[test]
fn an_arena_that_is_used_up_says_so_and_goes_on() {
    let mut arena = arena(5);
    let run = take(&mut arena, 4).unwrap();
    assert_eq!(arena.take(2), Err(SourceError::Memory { bytes: 8192 }));
    arena.put(run, 4);
    assert!(arena.take(4).is_ok());
    arena.check();
}

#[test]
fn a_failed_commit_leaves_the_counts_alone() {
    let source = FailingPages::new(Arc::new(HeapPages), 1);
    let mut arena = Arena::new(source.reserve(16 * 4096).unwrap(), PageSize::KIB4);
    let run = take(&mut arena, 2).unwrap();
    assert!(take(&mut arena, 2).is_err() && arena.take_page().is_err());
    assert_eq!(arena.used(), PageCount(2));
    arena.put(run, 2);
    let batch = arena.begin_release(PageCount::ZERO);
    batch.release();
    arena.end_release(batch);
    assert!(take(&mut arena, 2).is_err(), "a cold run needs a commit");
    arena.check();
}

#[test]
fn arenas_of_one_pool_count_their_pages_together() {
    let used = Arc::new(UsedPages::default());
    let [mut a, mut b] = [0; 2].map(|_| arena(16).counted_in(Arc::clone(&used)));
    let run = take(&mut a, 3).unwrap();
    let page = b.take_page().unwrap();
    b.put_page(page);
    a.put(run, 3);
    assert!(take(&mut b, 2).is_ok());
    assert_eq!((used.now(), used.peak()), (PageCount(2), PageCount(4)));
    assert_eq!((a.used(), b.used()), (PageCount(0), PageCount(2)));
}

#[test]
fn releases_are_due_past_the_warm_limit_and_come_in_batches() {
    let mut arena = arena(256);
    let pages: Vec<_> = (0..200).map(|_| arena.take_page().unwrap()).collect();
    for page in pages {
        arena.put_page(page);
        if arena.release_due() {
            let batch = arena.begin_release(arena.warm_keep());
            assert!(batch.runs.len() > 32);
            batch.release();
            arena.end_release(batch);
        }
    }
    assert!(arena.warm().0 <= 64);
    assert_eq!((arena.used(), arena.used_peak()), (PageCount(0), PageCount(200)));
    arena.check();
}
