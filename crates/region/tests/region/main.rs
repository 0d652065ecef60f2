//! Regions as programs use them.
//!
//! - `contents`: what is written is read, under any limit, by any number of threads
//! - `heap`: blocks of any size out of few regions
//! - `system`: system calls, pins, what the owner does to the mapping
//! - `processes`: what happens in processes of their own: signals, forks, ends
//! - `threads`: faults that threads of the memory resolve

mod contents;
mod copies;
mod heap;
mod processes;
mod system;
mod threads;

use std::time::{Duration, Instant};

use zfold_region::{Memory, MemoryOptions, MemoryStats, Region};

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;

/// Options with a small capacity.
fn small(limit: usize) -> MemoryOptions {
    MemoryOptions::new(limit).with_capacity(256 * MIB)
}

/// Numbers from a seed.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Fills a page with bytes that tell which one it is, of which half compress.
fn fill(page: &mut [u8], number: u64, version: u64) {
    let mut state = (number << 20 | version).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for word in page[..PAGE / 2].chunks_exact_mut(8) {
        word.copy_from_slice(&random(&mut state).to_ne_bytes());
    }
    for word in page[PAGE / 2..].chunks_exact_mut(8) {
        word.copy_from_slice(&(number << 20 | version).to_ne_bytes());
    }
}

fn expect(page: &[u8], number: u64, version: u64) {
    let mut right = [0; PAGE];
    fill(&mut right, number, version);
    assert!(page == right, "page {number} is not version {version}");
}

/// A region of which every page is filled and compressed.
fn paged_out(bytes: usize) -> Region {
    let mut region = Region::new(bytes, &small(bytes + MIB)).unwrap();
    (0..).zip(region.as_mut_slice::<u8>().chunks_mut(PAGE)).for_each(|(n, page)| fill(page, n, 1));
    region.pageout(..).unwrap();
    region
}

/// Returns the figures once they are `right`. What background threads are in the middle of may
/// count for a moment.
fn once(memory: &Memory, right: impl Fn(&MemoryStats) -> bool) -> MemoryStats {
    let start = Instant::now();
    loop {
        let stats = memory.stats();
        if right(&stats) {
            return stats;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "never right: {stats:?}");
        std::thread::yield_now();
    }
}

/// Returns the figures once so many pages are stored and resident.
fn holds(memory: &Memory, stored: u64, resident: u64) -> MemoryStats {
    once(memory, |stats| (stats.stored_pages, stats.resident_pages) == (stored, resident))
}

/// Says that a test did not run.
fn skip(test: &str, reason: impl std::fmt::Display) {
    use std::io::Write;
    // Not captured, as print! is.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: {reason}");
}
