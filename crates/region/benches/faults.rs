//! What a fault, a pageout and a drop cost. Run by hand:
//!
//! ```text
//! cargo bench -p zfold-region --bench faults -- [threads] [file of pages]
//! ```
//!
//! 512 MiB of which 256 MiB are resident, filled with the pages of the file over and over (4096
//! bytes each, as `zstd -d corpus/cc1.pages.zst` leaves them) or with pages of which one half is
//! noise. Then every thread reads a byte of random pages. Times are by the clock, and of
//! processors: of all threads of the process, and, for faults, of the threads that touch.

mod common;

use std::time::{Duration, Instant};

use common::{PAGE, arguments, clock, pages};
use rustix::time::ClockId;
use zfold_region::{MemoryOptions, Region};
use zfold_testing::Random;

const BYTES: usize = 512 << 20;
const LIMIT: usize = 256 << 20;
const READS: usize = 400_000;

fn main() {
    let args = arguments();
    let threads = args.first().map_or(1, |arg| arg.parse().expect("a number of threads"));
    let pages = pages(args.get(1));
    let mut region = Region::new(BYTES, &MemoryOptions::new(LIMIT)).expect("a region");

    let start = Start::now();
    for (page, from) in region.as_mut_slice::<u8>().chunks_mut(PAGE).zip(pages.chunks(PAGE).cycle())
    {
        page.copy_from_slice(from);
    }
    report("fill", start, BYTES / PAGE, "page");

    let before = region.stats();
    let start = Start::now();
    let touching: Duration = std::thread::scope(|scope| {
        let read = |seed| {
            let region = &region;
            scope.spawn(move || read_randomly(region, seed, READS / threads))
        };
        let readers: Vec<_> = (1..=threads as u64).map(read).collect();
        readers.into_iter().map(|reader| reader.join().expect("no panic")).sum()
    });
    let stats = region.stats();
    let faults = stats.faults_total - before.faults_total;
    report("random reads", start, faults as usize, "fault");
    println!("    {:.2} us of processor time in its thread", micros(touching, faults as usize));
    println!("    latency {:?}", stats.latency);
    println!("    waits {}", stats.waits_for_room_total - before.waits_for_room_total);
    println!("    refaults {}", stats.refaults_total - before.refaults_total);

    for (page, from) in region.as_slice::<u8>().chunks(PAGE).zip(pages.chunks(PAGE).cycle()) {
        assert!(page == from, "wrong bytes");
    }
    region.prefetch(..);
    let resident = region.stats().resident_pages - region.stats().staged_pages;
    let start = Start::now();
    region.pageout(..).expect("room in the store");
    report("pageout", start, resident as usize, "page");

    let mut half = Region::new(LIMIT, &MemoryOptions::new(LIMIT + (64 << 20))).expect("a region");
    for (page, from) in half.as_mut_slice::<u8>().chunks_mut(PAGE).zip(pages.chunks(PAGE).cycle()) {
        page.copy_from_slice(from);
    }
    let start = Start::now();
    half.pageout(..).expect("room in the store");
    report("pageout of 256 MiB", start, LIMIT / PAGE, "page");
    println!("    {:?}", half.stats());
    let start = Start::now();
    drop(half);
    report("drop of 256 MiB that are paged out", start, LIMIT / PAGE, "page");
}

/// Returns the processor time it took.
fn read_randomly(region: &Region, seed: u64, reads: usize) -> Duration {
    let before = clock(ClockId::ThreadCPUTime);
    let mut random = Random::new(seed);
    let bytes = region.as_slice::<u8>();
    let mut sum = 0_u64;
    for _ in 0..reads {
        sum += u64::from(bytes[random.index(bytes.len())]);
    }
    std::hint::black_box(sum);
    clock(ClockId::ThreadCPUTime) - before
}

/// A moment by the clock and in processor time of the process.
#[derive(Clone, Copy)]
struct Start(Instant, Duration);

impl Start {
    fn now() -> Self {
        Self(Instant::now(), clock(ClockId::ProcessCPUTime))
    }
}

fn micros(time: Duration, count: usize) -> f64 {
    time.as_secs_f64() * 1e6 / count.max(1) as f64
}

fn report(what: &str, start: Start, count: usize, unit: &str) {
    let (clock, cpus) = (start.0.elapsed(), clock(ClockId::ProcessCPUTime) - start.1);
    let (clock, cpus) = (micros(clock, count), micros(cpus, count));
    println!("{what}: {clock:.2} us a {unit}, {cpus:.2} us of processors ({count})");
}
