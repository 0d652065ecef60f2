//! Passes over a region that is larger than its resident limit, upwards, downwards and in steps,
//! and touches at random. Run by hand:
//!
//! ```text
//! cargo bench -p zfold-region --bench streams -- [codec] [file of pages] [signals|threads]
//!     [passes that read] [MiB of the store, beyond which pages go to a temporary file]
//! ```
//!
//! 1 GiB of which 256 MiB are resident, filled with the pages of the file over and over (4096 bytes
//! each, as `zstd -d corpus/numpy.pages.zst` leaves them) or with pages of which one half is noise.
//! Speeds are by the clock; processor time is that of all threads of the process.

mod common;

use std::sync::Arc;
use std::time::Instant;

use common::{PAGE, arguments, clock, pages};
use rustix::time::ClockId;
use zfold_region::{FaultMode, MemoryOptions, Region};
use zfold_store::backing::{FileBacking, FileOptions};
use zfold_store::{BackingOptions, CodecKind, CodecSpec};
use zfold_testing::Random;

const BYTES: usize = 1 << 30;
const LIMIT: usize = 256 << 20;
const TOUCHES: usize = 400_000;

fn main() {
    let args = arguments();
    let codec: CodecSpec =
        args.first().map_or(CodecKind::Lz4.into(), |arg| arg.parse().expect("a codec"));
    let pages = pages(args.get(1));
    let mut options = MemoryOptions::new(LIMIT).with_codec(codec);
    if args.get(2).is_some_and(|mode| mode == "threads") {
        options.faults = FaultMode::Thread;
    }
    let passes = args.get(3).map_or(3, |arg| arg.parse().expect("a number of passes"));
    if let Some(limit) = args.get(4) {
        let limit: u64 = limit.parse().expect("MiB");
        let file = std::env::temp_dir().join(format!("zfold-streams-{}", std::process::id()));
        let backing = FileBacking::open(&file, &FileOptions::new().with_len(Some(2 << 30)));
        options = options
            .with_store_limit(limit << 20)
            .with_backing(BackingOptions::new(Arc::new(backing.expect("a file"))));
        // It is there as long as it is open.
        std::fs::remove_file(&file).expect("its file");
    }
    let mut region = Region::new(BYTES, &options).expect("a region");

    timed("fill", || {
        let to = region.as_mut_slice::<u8>().chunks_mut(PAGE);
        to.zip(pages.chunks(PAGE).cycle()).for_each(|(page, from)| page.copy_from_slice(from));
    });
    timed("update", || region.as_mut_slice::<u64>().iter_mut().for_each(|word| *word ^= 1));
    for _ in 0..passes {
        timed("read", || {
            let words = region.as_slice::<u64>().iter();
            std::hint::black_box(words.fold(0_u64, |sum, word| sum.wrapping_add(*word)));
        });
    }
    timed("read downwards", || {
        let words = region.as_slice::<u64>().iter().rev();
        std::hint::black_box(words.fold(0_u64, |sum, word| sum.wrapping_add(*word)));
    });
    // A word of each row of four pages, as of a column: a fourth of the pages at a time.
    timed("read four columns", || {
        let words = region.as_slice::<u64>();
        let column = |page: usize| words[page * PAGE / 8..].iter().step_by(4 * PAGE / 8);
        let sum = |page| column(page).fold(0_u64, |sum, word| sum.wrapping_add(*word));
        std::hint::black_box((0..4).map(sum).fold(0, u64::wrapping_add));
    });
    let (mut random, sum) = (Random::new(7), &mut 0_u64);
    at_random("reads", &mut region, |bytes| {
        *sum = sum.wrapping_add(bytes[random.index(bytes.len())].into());
    });
    std::hint::black_box(*sum);
    // What was only read up to here.
    timed("update", || region.as_mut_slice::<u64>().iter_mut().for_each(|word| *word ^= 1));
    timed("read", || {
        let words = region.as_slice::<u64>().iter();
        std::hint::black_box(words.fold(0_u64, |sum, word| sum.wrapping_add(*word)));
    });
    at_random("updates", &mut region, |bytes| {
        let byte = &mut bytes[random.index(bytes.len())];
        *byte = std::hint::black_box(*byte);
    });
    for (page, from) in region.as_slice::<u8>().chunks(PAGE).zip(pages.chunks(PAGE).cycle()) {
        assert!(page == from, "wrong bytes");
    }
    println!("{:?}", region.stats());
}

fn at_random(what: &str, region: &mut Region, mut touch: impl FnMut(&mut [u8])) {
    let (before, begun) = (region.stats(), Instant::now());
    let used = clock(ClockId::ProcessCPUTime);
    let bytes = region.as_mut_slice::<u8>();
    (0..TOUCHES).for_each(|_| touch(bytes));
    let (took, used) = (begun.elapsed(), clock(ClockId::ProcessCPUTime) - used);
    let faults = region.stats().faults_total - before.faults_total;
    println!(
        "random {what}: {:.2} us a touch, {:.2} s of processors ({faults} faults)",
        took.as_secs_f64() * 1e6 / TOUCHES as f64,
        used.as_secs_f64()
    );
}

fn timed(what: &str, pass: impl FnOnce()) {
    let (begun, before) = (Instant::now(), clock(ClockId::ProcessCPUTime));
    pass();
    let (took, used) = (begun.elapsed().as_secs_f64(), clock(ClockId::ProcessCPUTime) - before);
    println!(
        "{what}: {took:.2} s, {:.2} GB/s, {:.2} s of processors",
        BYTES as f64 / took / 1e9,
        used.as_secs_f64()
    );
}
