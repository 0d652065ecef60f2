//! Patterns of touches, some of which write. Run by hand:
//!
//! ```text
//! cargo bench -p zfold-region --bench patterns -- [file of pages] [pages] [touches] [patterns]
//! ```
//!
//! As many pages of which a fourth is resident, filled with those of the file over and over (4096
//! bytes each) or with pages of which one half is noise. Each pattern is touched half as often
//! before it is measured. It is a name and one write in so many touches, or none: `mix/8`. Times
//! are of processors, of all threads of the process.

mod common;

use common::{PAGE, arguments, clock, pages};
use rustix::time::ClockId;
use zfold_region::{MemoryOptions, Region};
use zfold_testing::Random;

const PATTERNS: &str =
    "8020/0 8020/64 8020/8 8020/1 changing/0 zipf/0 zipf/8 mix/0 mix/8 loop/0 loop/1 random/0";

/// Chooses pages of so many.
struct Touches<'a> {
    pattern: &'a str,
    pages: usize,
    random: Random,
    done: usize,
}

impl Touches<'_> {
    fn next(&mut self) -> usize {
        let (pages, now) = (self.pages, self.done);
        self.done += 1;
        match self.pattern {
            // Four of five in a fifth of the pages; and in another one after each so many.
            "8020" => self.in_a_fifth(),
            "changing" => (self.in_a_fifth() + now / (pages * 3 / 2) * (pages / 5)) % pages,
            "zipf" => {
                let share = self.random.below(1 << 30) as f64 / f64::from(1 << 30);
                let rank = (pages as f64).powf(share) as usize;
                rank.min(pages - 1) * 7919 % pages
            }
            // Every second in a sixth, the others in turn.
            "mix" if now % 2 == 0 => self.random.index(pages / 6),
            "mix" => now / 2 % pages,
            "loop" => now % pages,
            "random" => self.random.index(pages),
            other => panic!("no pattern {other}"),
        }
    }

    fn in_a_fifth(&mut self) -> usize {
        let fifth = self.pages / 5;
        match self.random.below(10) {
            0..8 => self.random.index(fifth),
            _ => fifth + self.random.index(self.pages - fifth),
        }
    }
}

fn main() {
    let args = arguments();
    let from = pages(args.first());
    let number =
        |at: usize, or: usize| args.get(at).map_or(or, |arg| arg.parse().expect("a number"));
    let (pages, touches) = (number(1, 65_536), number(2, 400_000));
    for name in args.get(3).map_or(PATTERNS, String::as_str).split(' ') {
        let (pattern, writes) = name.split_once('/').expect("a name and a number");
        measure(name, pattern, writes.parse().expect("a number"), &from, pages, touches);
    }
}

fn measure(name: &str, pattern: &str, writes: u64, from: &[u8], pages: usize, touches: usize) {
    let options = MemoryOptions::new(pages * PAGE / 4);
    let mut region = Region::new(pages * PAGE, &options).expect("a region");
    let to = region.as_mut_slice::<u8>().chunks_mut(PAGE);
    to.zip(from.chunks(PAGE).cycle()).for_each(|(page, from)| page.copy_from_slice(from));
    let mut next = Touches { pattern, pages, random: Random::new(5), done: 0 };
    let mut sum = 0_u64;
    let mut touch = |region: &mut Region, count: usize| {
        let bytes = region.as_mut_slice::<u8>();
        for _ in 0..count {
            let byte = &mut bytes[next.next() * PAGE + next.random.index(PAGE)];
            if writes > 0 && next.random.below(writes) == 0 {
                *byte = byte.wrapping_add(1);
            } else {
                sum = sum.wrapping_add((*byte).into());
            }
        }
    };
    touch(&mut region, touches / 2);
    let (before, used) = (region.stats(), clock(ClockId::ProcessCPUTime));
    touch(&mut region, touches);
    let (after, used) = (region.stats(), clock(ClockId::ProcessCPUTime) - used);
    std::hint::black_box(sum);
    println!(
        "{name}: {:.3} s of processors, {} faults, {} loads, {} prefetched, {} stores, {} kept",
        used.as_secs_f64(),
        after.faults_total - before.faults_total,
        after.loads_total - before.loads_total,
        after.prefetched_total - before.prefetched_total,
        after.stores_total - before.stores_total,
        after.kept_copies_total - before.kept_copies_total,
    );
}
