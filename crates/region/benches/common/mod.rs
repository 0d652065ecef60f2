//! The pages that the benchmarks fill a region with, and the clocks that they read.

// Each benchmark uses a part of it.
#![allow(dead_code)]

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use zfold_testing::random::noisy;

/// Bytes of a page of a file of pages.
pub(crate) const PAGE: usize = 4096;

/// Returns the pages of a file, or pages of which one half is noise for none and `-`.
pub(crate) fn pages(file: Option<&String>) -> Vec<u8> {
    match file.map(String::as_str) {
        None | Some("-") => (0..1024).flat_map(|page| noisy(page, PAGE / 2, PAGE)).collect(),
        Some(file) => std::fs::read(file).expect("a file"),
    }
}

/// Returns the arguments, without those of `cargo bench`.
pub(crate) fn arguments() -> Vec<String> {
    std::env::args().skip(1).filter(|arg| arg != "--bench").collect()
}

/// Returns the time of a clock.
pub(crate) fn clock(id: ClockId) -> Duration {
    let time = clock_gettime(id);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
