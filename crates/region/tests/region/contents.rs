//! What is written is read, under any limit, by any number of threads.

use zfold_region::{FaultMode, Memory, MemoryStats, Region, RegionError};

use super::{MIB, PAGE, Random, at_once, beside, expect, fill, holds, once, read, small, write};

#[test]
fn what_is_written_is_read_under_a_small_limit() {
    // The second is as small as a limit can be.
    for limit in [MIB, MIB / 4] {
        let mut region = Region::new(16 * limit, &small(limit)).unwrap();
        assert!(region.as_slice::<u8>().iter().all(|&byte| byte == 0), "new pages are zeros");
        for version in 1..4 {
            write(&mut region, version);
            read(&region, version);
        }
        let (stats, most) = (region.stats(), (limit / PAGE) as u64);
        assert!(stats.resident_pages <= most, "{stats:?}");
        assert!(stats.stored_pages >= 15 * most, "{stats:?}");
        assert!(stats.latency.max >= stats.latency.p999 && stats.latency.p999 >= stats.latency.p50);
        assert!((1..1_000_000_000).contains(&stats.latency.p50));
        assert!(
            stats.store_bytes > stats.compressed_bytes
                && stats.compressed_bytes > 15 * limit as u64 / 2
        );
    }
}

#[test]
fn regions_share_limit_and_store() {
    let memory = Memory::new(&small(MIB)).unwrap();
    let mut regions: Vec<_> = (0..3).map(|_| memory.region(2 * MIB).unwrap()).collect();
    for (number, region) in (0..).zip(&mut regions) {
        region.as_mut_slice::<u8>().chunks_mut(PAGE).for_each(|page| fill(page, number, 7));
    }
    for (number, region) in (0..).zip(&regions) {
        region.as_slice::<u8>().chunks(PAGE).for_each(|page| expect(page, number, 7));
    }
    assert!(memory.stats().resident_pages <= 256);
    drop(regions);
    let stats = once(&memory, |stats| {
        stats.stored_pages == 0 && stats.resident_pages <= stats.staged_pages
    });
    assert_eq!(stats.pinned_pages, 0, "{stats:?}");
    let region = memory.region(8 * MIB).unwrap();
    assert!(region.as_slice::<u8>().iter().all(|&byte| byte == 0), "keys are used again, clean");
}

#[test]
fn pageout_compresses_and_prefetch_brings_back() {
    let mut region = Region::new(MIB, &small(2 * MIB)).unwrap();
    (0..).zip(region.as_mut_slice::<u8>().chunks_mut(PAGE)).for_each(|(n, page)| fill(page, n, 1));
    region.pageout(..).unwrap();
    let stats = holds(region.memory(), 256, 0);
    assert!(stats.compressed_bytes < MIB as u64 * 3 / 4, "{stats:?}");
    region.prefetch(PAGE..MIB / 2);
    let faults = holds(region.memory(), 129, 127).faults_total;
    (0..).zip(region.as_slice::<u8>()[PAGE..MIB / 2].chunks(PAGE)).for_each(|(n, page)| {
        expect(page, n + 1, 1);
    });
    assert_eq!(region.stats().faults_total, faults);
    (0..).zip(region.as_slice::<u8>().chunks(PAGE)).for_each(|(n, page)| expect(page, n, 1));
}

#[test]
fn discarded_pages_are_zeros_and_free() {
    let mut region = Region::new(MIB, &small(2 * MIB)).unwrap();
    region.as_mut_slice::<u8>().fill(7);
    region.pageout(..MIB / 2).unwrap();
    region.discard(100..MIB - 100);
    holds(region.memory(), 0, 2);
    let zeros =
        |range: std::ops::Range<usize>| region.as_slice::<u8>()[range].iter().all(|&b| b == 0);
    assert!(zeros(100..MIB - 100));
    assert!(region.as_slice::<u8>()[..100].iter().all(|&byte| byte == 7));
    assert!(region.as_slice::<u8>()[MIB - 100..].iter().all(|&byte| byte == 7));
}

#[test]
fn pages_of_zeros_take_nothing() {
    let mut region = Region::new(MIB, &small(2 * MIB)).unwrap();
    region.as_mut_slice::<u8>().fill(0);
    region.pageout(..).unwrap();
    assert_eq!(holds(region.memory(), 0, 0).zero_pages_total, 256);
}

#[test]
fn a_limit_below_the_minimum_is_refused_by_name() {
    let error = Region::new(MIB, &small(100)).unwrap_err();
    assert!(matches!(error, RegionError::LimitTooSmall(100)));
    assert!(error.to_string().contains(&format!("at least {}", MIB / 4)), "{error}");
    let error = Memory::new(&small(MIB)).unwrap().region(257 * MIB).unwrap_err();
    assert!(error.to_string().contains("raise the memory's capacity"), "{error}");
}

#[test]
fn a_sequence_is_brought_ahead() {
    let region = super::paged_out(MIB);
    (0..).zip(region.as_slice::<u8>().chunks(PAGE)).for_each(|(n, page)| expect(page, n, 1));
    let brought = |stats: &MemoryStats| {
        stats.loads_total + stats.first_touches_total + stats.prefetched_total
    };
    let stats = once(region.memory(), |stats| brought(stats) >= 2 * 256);
    assert_eq!(brought(&stats), 2 * 256, "written once, read once: {stats:?}");
    assert!(stats.prefetched_total > 200, "{stats:?}");
}

#[test]
fn sequences_downwards_and_in_steps_are_brought_ahead() {
    for step in [-1_isize, 3, -7] {
        let region = super::paged_out(MIB);
        let before = region.stats().faults_total;
        let pages = region.as_slice::<u8>().chunks(PAGE).enumerate();
        let mut pages: Vec<_> = pages.step_by(step.unsigned_abs()).collect();
        if step < 0 {
            pages.reverse();
        }
        for &(number, page) in &pages {
            expect(page, number as u64, 1);
        }
        let faults = region.stats().faults_total - before;
        assert!(faults * 3 < pages.len() as u64, "{faults} of {} in steps of {step}", pages.len());
        (0..).zip(region.as_slice::<u8>().chunks(PAGE)).for_each(|(n, page)| expect(page, n, 1));
    }
}

#[test]
fn background_threads_bring_what_a_sequence_touches_next() {
    let region = super::paged_out(MIB);
    let before = region.stats().faults_total;
    // The window at which the touching thread leaves the rest to others.
    let window = 2 * (64 << 10) / PAGE;
    for (n, page) in (0..window as u64).zip(region.as_slice::<u8>().chunks(PAGE)) {
        expect(page, n, 1);
    }
    let stats = once(region.memory(), |stats| stats.stored_pages == (257 - 2 * window) as u64);
    // 1, 2, 4 .. pages and the first half of the last window by touches.
    assert_eq!(stats.faults_total - before, u64::from(window.ilog2()) + 1, "{stats:?}");
    let rest = region.as_slice::<u8>()[window * PAGE..].chunks(PAGE);
    (window as u64..).zip(rest).for_each(|(n, page)| expect(page, n, 1));
}

#[test]
fn a_page_that_is_touched_soon_comes_back_without_the_store() {
    let mut region = Region::new(4 * MIB, &small(MIB)).unwrap();
    let mut random = Random::new(1);
    for _ in 0..20_000 {
        // Half of the touches go to a quarter of the pages.
        let page = random.index(1024);
        let page = if random.once_in(2) { page / 4 } else { page };
        region.as_mut_slice::<u8>()[page * PAGE] = 1;
    }
    let stats = region.stats();
    assert!(stats.refaults_total > 100, "{stats:?}");
}

/// The case that lost updates where pages are copied and then dropped: every write is either in
/// the page before it leaves, or waits until it is back.
#[test]
fn no_update_is_lost_while_pages_leave() {
    use std::sync::atomic::{AtomicU64, Ordering};
    for (mode, pages) in
        [FaultMode::InThread, FaultMode::Thread].into_iter().flat_map(|m| [(m, 256), (m, 2048)])
    {
        let Some(region) = super::region(pages * PAGE, MIB, mode) else { continue };
        // Every page begins with a counter.
        let counters: Vec<&AtomicU64> = (0..pages)
            .map(|page| {
                let base = region.as_ptr().expose_provenance();
                let word = std::ptr::with_exposed_provenance::<AtomicU64>(base + page * PAGE);
                // SAFETY: inside the region, aligned, and only reached as an atomic.
                unsafe { &*word }
            })
            .collect();
        let write = |seed: u64| {
            let mut random = Random::new(seed);
            for _ in 0..20_000 {
                counters[random.index(pages)].fetch_add(1, Ordering::Relaxed);
            }
        };
        beside(|| region.pageout(..).unwrap(), || at_once(1..4, write));
        let sum: u64 = counters.iter().map(|counter| counter.load(Ordering::Relaxed)).sum();
        assert_eq!(sum, 60_000, "{:?}", region.stats());
        assert!(region.stats().resident_pages <= 256);
    }
}

#[test]
fn a_region_is_a_slice_of_any_plain_type() {
    let mut region = Region::new(8 * MIB + PAGE, &small(MIB)).unwrap();
    let len = region.len();
    let numbers = region.as_mut_slice::<f64>();
    assert_eq!(numbers.len(), len / 8);
    numbers.iter_mut().enumerate().for_each(|(n, number)| *number = n as f64 / 3.0);
    let right = |(n, number): (usize, &f64)| *number == n as f64 / 3.0;
    assert!(region.as_slice::<f64>().iter().enumerate().all(right));
    // What is left over at the end is in no value.
    assert_eq!(region.as_slice::<[u8; 24]>().len(), len / 24);
    assert_eq!(region.as_slice::<u8>()[8..16], (1.0_f64 / 3.0).to_ne_bytes());
    assert!(region.stats().stored_pages > 1000);
}
