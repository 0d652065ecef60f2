//! Pages that did not change come back protected from writes, and are dropped when they leave. The
//! kernel's page table (`/proc/self/pagemap`) tells which are protected.

use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};

use zfold_region::{FaultMode, Region};

use super::{MIB, PAGE, Random, at_once, expect, fill, once, read, skip, write};

/// The bits of an entry: the page is there, and protected by userfaultfd.
const THERE: u64 = 1 << 63;
const PROTECTED: u64 = 1 << 57;

/// Returns whether the entry of each page of a region has all of some bits.
fn have(region: &Region, bits: u64) -> Vec<bool> {
    let pagemap = std::fs::File::open("/proc/self/pagemap").unwrap();
    let mut entries = vec![0; region.len() / PAGE * 8];
    pagemap.read_exact_at(&mut entries, (region.as_ptr().addr() / PAGE * 8) as u64).unwrap();
    let all = |entry: &[u8]| u64::from_ne_bytes(entry.try_into().unwrap()) & bits == bits;
    entries.chunks_exact(8).map(all).collect()
}

/// Returns whether each page of a region is there.
pub(super) fn there(region: &Region) -> Vec<bool> {
    have(region, THERE)
}

/// Returns whether each page of a region is there and protected from writes.
fn protected(region: &Region) -> Vec<bool> {
    have(region, THERE | PROTECTED)
}

fn count(region: &Region) -> usize {
    protected(region).into_iter().filter(|&protected| protected).count()
}

/// A region of 2048 pages of which 512 are resident, most of them protected; none if this kernel
/// cannot drop many pages by one call.
fn protecting(mode: FaultMode) -> Option<Region> {
    let mut region = super::region(8 * MIB, 2 * MIB, mode)?;
    write(&mut region, 1);
    (0..4).for_each(|_| read(&region, 1));
    let protected = count(&region);
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let release = release.trim();
    let version: Vec<u32> = release.split(['.', '-']).map_while(|part| part.parse().ok()).collect();
    if protected == 0 && version < vec![6, 14] {
        skip(format_args!("Linux {release} does not drop many pages by one call"));
        return None;
    }
    assert!(protected > 200, "{protected} of 512, on Linux {release}");
    Some(region)
}

#[test]
fn pages_that_nobody_writes_leave_by_being_dropped() {
    let Some(region) = protecting(FaultMode::InThread) else {
        return;
    };
    let before = region.stats();
    (0..3).for_each(|_| read(&region, 1));
    let after = region.stats();
    let kept = after.kept_copies_total - before.kept_copies_total;
    let stored = after.stores_total - before.stores_total;
    assert!(kept > 3000 && stored < kept / 8, "{before:?} to {after:?}");
    // They are not moved to the staging area, from which they would come back without a load.
    assert!(after.refaults_total - before.refaults_total < kept / 8, "{before:?} to {after:?}");
}

/// Writes to protected pages, one after the other, here and there, and in large steps: each arrives
/// and stays.
#[test]
fn what_is_written_to_protected_pages_stays() {
    for mode in [FaultMode::InThread, FaultMode::Thread] {
        let Some(mut region) = protecting(mode) else { continue };
        let mut versions = vec![1; 2048];
        let mut random = Random::new(5);
        let write = |region: &mut Region, versions: &mut [u64], page: usize| {
            versions[page] += 1;
            let bytes = &mut region.as_mut_slice::<u8>()[page * PAGE..][..PAGE];
            fill(bytes, page as u64, versions[page]);
        };
        let check = |region: &Region, versions: &[u64]| {
            let pages = region.as_slice::<u8>().chunks(PAGE);
            (0..).zip(pages).for_each(|(n, page)| expect(page, n, versions[n as usize]));
        };
        for round in 0..4 {
            // What is resident first: it is protected.
            let there: Vec<_> = (0..2048).zip(protected(&region)).collect();
            let there = there.into_iter().filter_map(|(page, protected)| protected.then_some(page));
            there.step_by(3).for_each(|page| write(&mut region, &mut versions, page));
            for _ in 0..300 {
                write(&mut region, &mut versions, random.below(2048) as usize);
            }
            (0..2048).step_by(7).for_each(|page| write(&mut region, &mut versions, page));
            if round == 2 {
                (0..2048).for_each(|page| write(&mut region, &mut versions, page));
            }
            (0..3).for_each(|_| check(&region, &versions));
        }
        assert!(count(&region) > 100, "they are protected again");
    }
}

/// Threads that add to numbers in the same pages, seldom, beside threads that read all pages.
#[test]
fn no_write_is_lost_while_pages_are_dropped() {
    const THREADS: usize = 4;
    for mode in [FaultMode::InThread, FaultMode::Thread] {
        let Some(region) = protecting(mode) else { continue };
        let number = |page: usize, thread: usize| {
            let at = region.as_ptr().addr() + page * PAGE + thread * size_of::<AtomicU32>();
            // SAFETY: in the region, aligned, and only used as an atomic while the threads run.
            unsafe { &*std::ptr::with_exposed_provenance::<AtomicU32>(at) }
        };
        let _ = region.as_ptr().expose_provenance();
        at_once(0..THREADS, |thread| {
            let mut random = Random::new(thread as u64);
            let first: Vec<_> =
                (0..2048).map(|page| number(page, thread).load(Ordering::Relaxed)).collect();
            let mut added = vec![0; 2048];
            for _ in 0..20_000 {
                let page = random.below(2048) as usize;
                let one = number(page, thread);
                if random.below(16) == 0 {
                    one.fetch_add(1, Ordering::Relaxed);
                    added[page] += 1;
                }
                let expected = first[page].wrapping_add(added[page]);
                assert_eq!(one.load(Ordering::Relaxed), expected, "page {page}");
            }
        });
    }
}

/// A system call that writes to pages that are pinned, which were protected before.
#[test]
fn pinned_pages_can_be_written() {
    let Some(mut region) = protecting(FaultMode::InThread) else { return };
    let first = protected(&region).windows(16).position(|pages| pages.iter().all(|&one| one));
    let first = first.expect("neighbours that are protected");
    let pin = region.pin(first * PAGE..(first + 16) * PAGE).unwrap();
    assert!(!protected(&region)[first..first + 16].contains(&true));
    drop(pin);
    let (mut from, mut to) = UnixStream::pair().unwrap();
    to.write_all(&[7; PAGE]).unwrap();
    let bytes = first * PAGE..(first + 1) * PAGE;
    // A pin borrows the region, so the bytes are named without it.
    let pin = region.pin(bytes.clone()).unwrap();
    let start = region.as_ptr().wrapping_add(bytes.start);
    // SAFETY: the page is pinned, and nobody else uses it.
    let page = unsafe { std::slice::from_raw_parts_mut(start, PAGE) };
    from.read_exact(page).unwrap();
    drop(pin);
    region.pageout(..).unwrap();
    assert!(region.as_mut_slice::<u8>()[bytes].iter().all(|&byte| byte == 7));
}

/// Pages that their owner drops by `madvise` are zeros: the copy does not come back in their place.
#[test]
fn protected_pages_that_are_dropped_behind_our_back_are_zeros() {
    let Some(region) = protecting(FaultMode::InThread) else { return };
    let there = protected(&region);
    // SAFETY: gives up contents of the region, which nobody else uses.
    let dropped =
        unsafe { libc::madvise(region.as_ptr().cast(), region.len(), libc::MADV_DONTNEED) };
    assert_eq!(dropped, 0);
    region.pageout(..).unwrap();
    let pages = region.as_slice::<u8>().chunks(PAGE).zip(there);
    let zeros = |page: &[u8]| page.iter().all(|&byte| byte == 0);
    assert!(pages.filter(|(_, there)| *there).all(|(page, _)| zeros(page)));
}

/// Pages that their owner locks in memory stay until they are unlocked, as they are.
#[test]
fn protected_pages_that_are_locked_stay() {
    let Some(region) = protecting(FaultMode::InThread) else { return };
    let first = protected(&region).windows(8).position(|pages| pages.iter().all(|&one| one));
    let first = first.expect("neighbours that are protected");
    let start = region.as_ptr().wrapping_add(first * PAGE).cast();
    // Without a touch of each page, which a plain `mlock` does, as if it were to write.
    // SAFETY: changes no contents.
    if unsafe { libc::mlock2(start, 8 * PAGE, libc::MLOCK_ONFAULT) } != 0 {
        let error = std::io::Error::last_os_error();
        return skip(error);
    }
    let busy = region.stats().busy_pages_total;
    // Again and again: a thread may be about to bring pages ahead of the reads.
    let pageout = || region.pageout(..).unwrap();
    let stats = once(region.memory(), |stats| (stats.resident_pages == 8, pageout()).0);
    assert!(stats.busy_pages_total > busy, "{stats:?}");
    assert!(protected(&region)[first..first + 8].iter().all(|&one| one));
    // SAFETY: as above.
    assert_eq!(unsafe { libc::munlock(start, 8 * PAGE) }, 0);
    once(region.memory(), |stats| (stats.resident_pages == 0, pageout()).0);
    read(&region, 1);
}
