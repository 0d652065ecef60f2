//! Whatever could take protection from pages, or give it to others, all at once, while threads
//! check each value that they read: merging, reclaim, compaction, huge pages, locks, other
//! protections, forks, and writes by other ways than a thread's own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use zfold_region::{FaultMode, Region};

use super::merged::{Merging, advise, merge_process};
use super::processes::succeeds;
use super::{MIB, PAGE, Random, at_once, beside, small};

const PAGES: usize = 2048;
const THREADS: usize = 2;

/// For how long; `ZFOLD_MARKS_SECONDS` says otherwise.
fn seconds() -> u64 {
    std::env::var("ZFOLD_MARKS_SECONDS").map_or(6, |text| text.parse().expect("seconds"))
}

/// The number of one thread in one page. The others of a group of four pages are equal.
fn number(region: &Region, page: usize, thread: usize) -> &AtomicU64 {
    let at = region.as_ptr().wrapping_add(page * PAGE + thread * size_of::<AtomicU64>());
    // SAFETY: in the region, aligned, and only used as an atomic and by the kernel.
    unsafe { &*at.cast_const().cast() }
}

/// Writes as another process would, by a call that may find the page missing or protected; then in
/// the usual way.
fn write_by_call(to: &AtomicU64, value: u64) {
    let from = libc::iovec { iov_base: (&raw const value).cast_mut().cast(), iov_len: 8 };
    let into = libc::iovec { iov_base: to.as_ptr().cast(), iov_len: 8 };
    let (process, from, into) =
        (std::process::id() as libc::pid_t, &raw const from, &raw const into);
    // SAFETY: eight bytes of this process on both sides.
    let written = unsafe { libc::process_vm_writev(process, from, 1, into, 1, 0) };
    if written != 8 {
        to.store(value, Ordering::Relaxed);
    }
}

/// Reads and writes this thread's numbers until `ends`.
fn work(region: &Region, thread: usize, seed: u64, ends: Instant) {
    let mut random = Random::new(seed);
    let first = |page: usize| number(region, page, thread).load(Ordering::Relaxed);
    let mut expected: Vec<_> = (0..PAGES).map(first).collect();
    while Instant::now() < ends {
        // Passes bring pages back protected; then a while for those that merge.
        let begin = random.index(PAGES);
        for page in (begin..PAGES).chain(0..begin) {
            let found = number(region, page, thread).load(Ordering::Relaxed);
            assert_eq!(found, expected[page], "page {page} of thread {thread}, seed {seed}");
        }
        std::thread::sleep(Duration::from_millis(random.below(20)));
        for _ in 0..random.below(200) {
            let page = random.index(PAGES);
            let to = number(region, page, thread);
            assert_eq!(to.load(Ordering::Relaxed), expected[page], "page {page}, seed {seed}");
            expected[page] = expected[page].wrapping_add(1 + random.below(3));
            match random.below(4) {
                0 => write_by_call(to, expected[page]),
                _ => to.store(expected[page], Ordering::Relaxed),
            }
        }
    }
}

/// Does one thing that could change marks of a part of a region.
fn disturb(region: &Region, random: &mut Random, merging: bool) {
    let first = random.index(PAGES);
    let pages = 1 + random.index((PAGES - first).min(256));
    let at = region.as_ptr().wrapping_add(first * PAGE).cast();
    let kept = [
        libc::MADV_COLD,
        libc::MADV_PAGEOUT,
        libc::MADV_HUGEPAGE,
        libc::MADV_COLLAPSE,
        libc::MADV_NOHUGEPAGE,
        libc::MADV_POPULATE_WRITE,
    ];
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // Contents stay as they are; some of it is refused.
    match random.below(if merging { 12 } else { 8 }) {
        // SAFETY: see above.
        0 => _ = unsafe { libc::madvise(at, pages * PAGE, kept[random.index(kept.len())]) },
        1 => {
            // SAFETY: see above.
            unsafe { libc::mprotect(at, pages * PAGE, access | libc::PROT_EXEC) };
            std::thread::sleep(Duration::from_micros(random.below(500)));
            // SAFETY: see above.
            unsafe { libc::mprotect(at, pages * PAGE, access) };
        }
        2 => {
            // SAFETY: see above.
            unsafe { libc::mlock2(at, pages * PAGE, libc::MLOCK_ONFAULT) };
            std::thread::sleep(Duration::from_micros(random.below(500)));
            // SAFETY: see above.
            unsafe { libc::munlock(at, pages * PAGE) };
        }
        3 => _ = std::fs::write("/proc/self/clear_refs", ["1", "4"][random.index(2)]),
        4 if random.once_in(50) => _ = std::fs::write("/proc/sys/vm/compact_memory", "1"),
        5 if random.once_in(10) => {
            // SAFETY: the child ends at once.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: ends the child.
                unsafe { libc::_exit(0) };
            }
            // SAFETY: waits for a child of this thread's.
            unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        }
        6 if random.once_in(20) => region.pageout(..).unwrap(),
        8 => advise(region, libc::MADV_MERGEABLE),
        // SAFETY: see above.
        9 => _ = unsafe { libc::madvise(at, pages * PAGE, libc::MADV_MERGEABLE) },
        10 => merge_process(true),
        11 => merge_process(random.once_in(2)),
        _ => std::thread::sleep(Duration::from_millis(random.below(20))),
    }
}

/// A region of its own for each round, since protection ends where it was lost.
pub(super) fn scenario() {
    let seed = u64::from(std::process::id());
    let ends = Instant::now() + Duration::from_secs(seconds());
    let (mut round, mut dropped) = (0, 0);
    while Instant::now() < ends {
        let mode = if round % 4 == 3 { FaultMode::Thread } else { FaultMode::InThread };
        let region = Region::new(PAGES * PAGE, &small(2 * MIB).with_faults(mode)).unwrap();
        (0..PAGES * THREADS).for_each(|at| {
            let (page, thread) = (at / THREADS, at % THREADS);
            number(&region, page, thread).store(page as u64 / 4, Ordering::Relaxed);
        });
        let until = Instant::now() + Duration::from_secs(2);
        let seed = seed << 8 | round << 4;
        let mut random = Random::new(seed | 15);
        let each = |thread| work(&region, thread, seed | thread as u64, until);
        let disturb = || disturb(&region, &mut random, round % 2 == 1);
        beside(disturb, || at_once(0..THREADS, each));
        merge_process(false);
        let stats = region.stats();
        dropped += stats.kept_copies_total;
        round += 1;
    }
    println!("{round} rounds, {dropped} pages left as they had come");
    assert!(dropped > 0);
}

#[test]
fn no_write_is_lost_whatever_happens_to_marks() {
    let Some(_merging) = Merging::begin() else { return };
    succeeds("marks");
}
