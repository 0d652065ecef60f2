//! What the system does with the memory of a region, and what its owner does to the mapping.

use std::os::unix::net::UnixDatagram;

use zfold_region::{Region, RegionError};

use super::{MIB, PAGE, Random, expect, fill, holds, once, paged_out, read, small, write};

/// A system call that meets a missing page fails, and what it has taken from a socket is lost; on
/// pinned pages it works.
#[test]
fn a_datagram_is_received_into_pinned_memory_and_lost_otherwise() {
    let mut region = paged_out(MIB);
    let (sender, receiver) = UnixDatagram::pair().unwrap();
    receiver.set_nonblocking(true).unwrap();
    sender.send(b"first").unwrap();
    let error = receiver.recv(&mut region.as_mut_slice::<u8>()[..100]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
    let error = receiver.recv(&mut [0; 100]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "the first one is gone");

    sender.send(b"second").unwrap();
    let pin = region.pin(..100).unwrap();
    let buffer = std::ptr::slice_from_raw_parts_mut(pin.as_ptr(), 100);
    // SAFETY: pinned, inside the region, and nobody else uses it.
    let received = receiver.recv(unsafe { &mut *buffer }).unwrap();
    drop(pin);
    assert_eq!(&region.as_slice::<u8>()[..received], b"second");
}

/// A futex in a page that is missing cannot be waited for: locks that many threads sleep on belong
/// into pinned pages, or elsewhere.
#[test]
fn a_futex_works_in_a_pinned_page_only() {
    let region = paged_out(MIB);
    let word = region.as_ptr();
    let wait = || {
        // A value that it does not have: waiting ends at once.
        // SAFETY: the address of a word of the region; the kernel checks it.
        let result = unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, 1, 0, 0, 0) };
        assert_eq!(result, -1);
        std::io::Error::last_os_error().raw_os_error()
    };
    assert_eq!(wait(), Some(libc::EFAULT));
    let _pin = region.pin(..4).unwrap();
    assert_eq!(wait(), Some(libc::EAGAIN));
}

#[test]
fn pinned_pages_stay_under_pressure_and_pins_count() {
    let mut region = Region::new(8 * MIB, &small(MIB)).unwrap();
    write(&mut region, 1);
    let pins = [region.pin(..16 * PAGE).unwrap(), region.pin(8 * PAGE..24 * PAGE).unwrap()];
    let faults = |region: &Region, range: std::ops::Range<usize>| {
        let before = region.stats().faults_total;
        (0..)
            .zip(region.as_slice::<u8>().chunks(PAGE))
            .skip(range.start)
            .take(range.len())
            .for_each(|(n, page)| {
                expect(page, n, 1);
            });
        region.stats().faults_total - before
    };
    assert!(faults(&region, 24..2048) > 0);
    assert_eq!(faults(&region, 0..24), 0, "pinned pages stay");
    let [first, second] = pins;
    drop(first);
    region.pageout(..).unwrap();
    assert_eq!(faults(&region, 8..24), 0, "still pinned by the second");
    assert!(faults(&region, 0..8) > 0, "not pinned any more");
    assert_eq!(region.stats().pinned_pages, 16);
    drop(second);
    region.pageout(..).unwrap();
    once(region.memory(), |stats| stats.resident_pages == 0);
}

#[test]
fn more_than_the_limit_cannot_be_pinned() {
    let region = Region::new(8 * MIB, &small(MIB)).unwrap();
    let _pin = region.pin(..MIB / 2).unwrap();
    let error = region.pin(MIB..2 * MIB).unwrap_err();
    assert!(matches!(error, RegionError::PinLimit { .. }));
    assert!(error.to_string().contains("raise it, or pin less"), "{error}");
    assert!(region.pin(MIB..MIB + MIB / 4).is_ok());
}

#[test]
#[expect(clippy::mem_forget, reason = "the case that is tested")]
fn a_forgotten_pin_ends_with_its_region() {
    let memory = zfold_region::Memory::new(&small(MIB)).unwrap();
    let region = memory.region(MIB / 2).unwrap();
    std::mem::forget(region.pin(..PAGE).unwrap());
    drop(region);
    assert_eq!(memory.stats().pinned_pages, 0);
    let mut region = memory.region(MIB / 2).unwrap();
    assert!(region.as_slice::<u8>().iter().all(|&byte| byte == 0));
    region.as_mut_slice::<u8>().fill(1);
    region.pageout(..).unwrap();
    holds(&memory, 128, 0);
}

#[test]
fn a_full_store_leaves_pages_where_they_are() {
    let options = small(2 * MIB).with_store_limit(1);
    let mut region = Region::new(MIB, &options).unwrap();
    write(&mut region, 1);
    assert!(matches!(region.pageout(..), Err(RegionError::StoreFull)));
    holds(region.memory(), 0, 256);
    read(&region, 1);
}

/// `madvise(MADV_DONTNEED)` by the owner is not told to us: pages in their place become zeros, as
/// the system says; compressed ones come back. `discard` does it right for all.
#[test]
fn pages_that_the_owner_drops_behind_our_back_are_zeros() {
    let mut region = paged_out(MIB);
    region.as_mut_slice::<u8>()[..64 * PAGE].fill(5);
    // SAFETY: gives up contents of the region, which nobody else uses.
    unsafe { libc::madvise(region.as_ptr().cast(), 64 * PAGE, libc::MADV_DONTNEED) };
    assert!(region.as_slice::<u8>()[..64 * PAGE].iter().all(|&byte| byte == 0));
    (0..)
        .zip(region.as_slice::<u8>().chunks(PAGE))
        .skip(64)
        .for_each(|(n, page)| expect(page, n, 1));
    // SAFETY: same as above.
    unsafe { libc::madvise(region.as_ptr().cast(), MIB, libc::MADV_DONTNEED) };
    region.pageout(..).unwrap();
    holds(region.memory(), 0, 0);
    assert!(region.as_slice::<u8>().iter().all(|&byte| byte == 0));
}

/// A page that cannot be touched, as one whose memory is broken, stays one: it does not leave and
/// come back as zeros. The owner can make such pages, too.
#[test]
fn a_page_that_cannot_be_touched_stays() {
    const GUARD_INSTALL: libc::c_int = 102;
    const GUARD_REMOVE: libc::c_int = 103;
    let mut region = Region::new(MIB, &small(2 * MIB)).unwrap();
    region.as_mut_slice::<u8>().fill(5);
    let advise = |advice| {
        // SAFETY: gives up the contents of a page of the region, which nobody else uses.
        unsafe { libc::madvise(region.as_ptr().wrapping_add(PAGE).cast(), PAGE, advice) }
    };
    if advise(GUARD_INSTALL) != 0 {
        let error = std::io::Error::last_os_error();
        return zfold_testing::skip(error);
    }
    region.pageout(..).unwrap();
    holds(region.memory(), 255, 1);
    assert_eq!(advise(GUARD_REMOVE), 0);
    region.pageout(..).unwrap();
    holds(region.memory(), 255, 0);
}

/// A part that the owner protects stays where it is, and works as before when it is writable again.
#[test]
fn protected_pages_stay_and_the_others_leave() {
    let mut region = Region::new(MIB, &small(2 * MIB)).unwrap();
    write(&mut region, 1);
    let protect = |access| {
        let at = region.as_ptr().wrapping_add(10 * PAGE).cast();
        // SAFETY: changes the access of pages of the region, which nobody writes meanwhile.
        assert_eq!(unsafe { libc::mprotect(at, 20 * PAGE, access) }, 0);
    };
    protect(libc::PROT_READ);
    region.pageout(..).unwrap();
    once(region.memory(), |stats| stats.resident_pages == 20);
    read(&region, 1);
    protect(libc::PROT_READ | libc::PROT_WRITE);
    // Again and again: a thread may be about to bring pages ahead of the reads.
    let pageout = || region.pageout(..).unwrap();
    once(region.memory(), |stats| (stats.resident_pages == 0, pageout()).0);
    protect(libc::PROT_READ);
    read(&region, 1);
}

/// What /proc/self/smaps says of the mappings in a region: this field of each.
fn mappings(region: &Region, field: &str) -> Vec<String> {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let range = region.as_ptr().addr()..region.as_ptr().addr() + region.len();
    let mut inside = false;
    let mut flags = Vec::new();
    for line in smaps.lines() {
        let start = line.split_once('-').and_then(|(start, rest)| {
            rest.contains(' ').then(|| usize::from_str_radix(start, 16).ok())?
        });
        if let Some(start) = start {
            inside = range.contains(&start);
        } else if inside && line.starts_with(field) {
            flags.push(line.to_owned());
        }
    }
    flags
}

/// By the system's account, not our own.
#[test]
fn a_region_stays_one_mapping_that_no_child_inherits_within_its_limit() {
    let mut region = Region::new(8 * MIB, &small(MIB)).unwrap();
    let (mut random, mut most) = (Random::new(3), 0);
    for round in 0..8000 {
        let page = random.index(2048);
        fill(&mut region.as_mut_slice::<u8>()[page * PAGE..][..PAGE], page as u64, 1);
        if round % 100 == 0 {
            let rss = mappings(&region, "Rss:").concat();
            let kib: usize = rss.split_whitespace().nth(1).unwrap().parse().unwrap();
            most = most.max(kib);
        }
    }
    assert!((MIB / 2..=MIB).contains(&(most << 10)), "{most} KiB");
    let flags = mappings(&region, "VmFlags");
    assert_eq!(flags.len(), 1, "{flags:?}");
    let has = |flag: &str| flags[0].split_whitespace().any(|other| other == flag);
    // Not for fork, no huge pages, missing pages told to userfaultfd.
    assert!(has("dc") && has("nh") && has("um"), "{flags:?}");
}

/// Half of a region is unmapped by its owner: the rest works, and what is gone is not waited for.
#[test]
fn a_part_that_is_unmapped_is_left_alone() {
    let mut region = Region::new(MIB, &small(2 * MIB)).unwrap();
    write(&mut region, 1);
    let half = region.as_ptr().wrapping_add(MIB / 2).cast();
    // SAFETY: nobody touches that half any more. Something else is put there so that no other
    // thread's mapping is unmapped when the region is dropped.
    let mapped = unsafe {
        libc::mmap(
            half,
            MIB / 2,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    assert_eq!(mapped, half);
    region.pageout(..).unwrap();
    holds(region.memory(), 128, 128);
    (0..128).zip(region.as_slice::<u8>().chunks(PAGE)).for_each(|(n, page)| expect(page, n, 1));
}

#[test]
fn a_discard_fills_pages_with_zeros_whose_pins_were_forgotten() {
    let mut region = Region::new(MIB, &small(2 * MIB)).unwrap();
    region.as_mut_slice::<u8>().fill(7);
    let _forgotten = std::mem::ManuallyDrop::new(region.pin(2 * PAGE..4 * PAGE).unwrap());
    region.discard(PAGE..8 * PAGE);
    assert!(region.as_slice::<u8>()[..PAGE].iter().all(|&byte| byte == 7));
    assert!(region.as_slice::<u8>()[PAGE..8 * PAGE].iter().all(|&byte| byte == 0));
    assert!(region.as_slice::<u8>()[8 * PAGE..].iter().all(|&byte| byte == 7));
}
