//! Regions as programs use them.
//!
//! - `contents`: what is written is read, under any limit, by any number of threads
//! - `hot`: who stays
//! - `heap`: blocks of any size out of few regions
//! - `system`: system calls, pins, what the owner does to the mapping
//! - `protected`: pages that nobody has written since they came back
//! - `merged`: pages that the kernel merges with equal ones meanwhile (KSM)
//! - `marks`: whatever else could take protection away, all at once
//! - `processes`: what happens in processes of their own: signals, forks, ends
//! - `threads`: faults that threads of the memory resolve

mod contents;
mod copies;
mod heap;
mod hot;
mod marks;
mod merged;
mod processes;
mod protected;
mod system;
mod threads;

use zfold_region::{FaultMode, Memory, MemoryOptions, MemoryStats, Region, RegionError};
use zfold_testing::wait::{at_once, beside};
use zfold_testing::{Random, skip, wait_for};

/// Bytes of a page. A build for a system with larger ones has them in `ZFOLD_PAGE_KIB`.
const PAGE: usize = match option_env!("ZFOLD_PAGE_KIB") {
    Some(kib) => (kib.as_bytes()[0] - b'0') as usize * 10 + (kib.as_bytes()[1] - b'0') as usize,
    None => 4,
} << 10;
/// Bytes of 256 pages.
const MIB: usize = 256 * PAGE;

#[test]
fn the_tests_are_for_pages_of_this_system() {
    assert_eq!(PAGE, rustix::param::page_size());
}

/// Options with a small capacity.
fn small(limit: usize) -> MemoryOptions {
    MemoryOptions::new(limit).with_capacity(256 * MIB)
}

/// Fills a page with bytes that tell which one it is, of which half compress.
fn fill(page: &mut [u8], number: u64, version: u64) {
    Random::new(number << 20 | version).fill(&mut page[..PAGE / 2]);
    for word in page[PAGE / 2..].chunks_exact_mut(8) {
        word.copy_from_slice(&(number << 20 | version).to_ne_bytes());
    }
}

fn expect(page: &[u8], number: u64, version: u64) {
    let mut right = [0; PAGE];
    fill(&mut right, number, version);
    assert!(page == right, "page {number} is not version {version}");
}

/// Fills every page of a region.
fn write(region: &mut Region, version: u64) {
    let pages = region.as_mut_slice::<u8>().chunks_mut(PAGE);
    (0..).zip(pages).for_each(|(number, page)| fill(page, number, version));
}

fn read(region: &Region, version: u64) {
    let pages = region.as_slice::<u8>().chunks(PAGE);
    (0..).zip(pages).for_each(|(number, page)| expect(page, number, version));
}

/// A region whose faults are resolved in this way, unless that is not permitted here.
fn region(bytes: usize, limit: usize, mode: FaultMode) -> Option<Region> {
    match Region::new(bytes, &small(limit).with_faults(mode)) {
        Ok(region) => Some(region),
        Err(error @ RegionError::NotPermitted(_)) => {
            assert!(error.to_string().contains("setfacl"), "{error}");
            skip(error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A region of which every page is filled and compressed.
fn paged_out(bytes: usize) -> Region {
    let mut region = Region::new(bytes, &small(bytes + MIB)).unwrap();
    write(&mut region, 1);
    region.pageout(..).unwrap();
    region
}

/// Returns the figures once they are `right`. What background threads are in the middle of may
/// count for a moment.
fn once(memory: &Memory, right: impl Fn(&MemoryStats) -> bool) -> MemoryStats {
    wait_for(|| {
        let stats = memory.stats();
        if right(&stats) { Ok(stats) } else { Err(Box::new(stats)) }
    })
}

/// Returns the figures once so many pages are stored and resident.
fn holds(memory: &Memory, stored: u64, resident: u64) -> MemoryStats {
    once(memory, |stats| (stats.stored_pages, stats.resident_pages) == (stored, resident))
}
