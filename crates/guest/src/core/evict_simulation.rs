//! A deterministic simulation of pages that leave: a kernel of plain data in which a file is
//! mapped, processors that hammer it between any two of its calls, a balloon, somebody else who
//! maps the file; and the same with one step broken, which must be caught.
//!
//! What every read must find is known. Servers are killed in any call; the next one has the bits,
//! and says what is lost: never a page that somebody could have.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use zfold_testing::Random;
use zfold_uffd::page::PAGE;

use super::evict::Broken;
use super::evict_kernel::{BASE, Kernel, MIDDLE, PAGES, PROCESSORS, Twin, Words};
use super::fault::Next;
use super::guest::Guest;
use super::regions::Region;
use super::succession::{Kept, Killed};

fn regions() -> Vec<Region> {
    let region = |pages: Range<usize>| Region {
        at: BASE + pages.start * PAGE..BASE + pages.end * PAGE,
        page: pages.start as u64,
        unit: PAGE,
        first: pages.start as u64,
    };
    vec![region(0..MIDDLE), region(MIDDLE..PAGES)]
}

/// Returns a guest with these bits, and how many pages are lost.
fn begin(bits: &Kept, kernel: &mut Kernel, takes_over: bool) -> (Guest, u64) {
    let mut guest = Guest::new(regions(), Box::new(bits.clone()));
    if takes_over {
        let journal = std::mem::take(&mut kernel.journal);
        guest.take_over(journal.into_iter(), kernel);
    }
    let present = match kernel.twin {
        Twin::StillOut if takes_over => Vec::new(),
        _ => kernel.present(),
    };
    let lost = guest.begin_leaving(&present, kernel);
    if let (Twin::Core(broken), Some(leaving)) = (kernel.twin, guest.leaving()) {
        leaving.broken = broken;
    }
    (guest, lost)
}

/// What a run has seen.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    left: u64,
    stayed: u64,
    returned: u64,
    killed: u64,
    lost: u64,
    touches: u64,
    shared: u64,
}

/// Runs a seed to its end; it ends early where pages are lost.
fn run(seed: u64, twin: Twin) -> Seen {
    let mut random = Random::new(seed);
    let mut kernel = Kernel::new(twin, Random::new(random.word()));
    let bits = Kept::of(PAGES as u64);
    let deadly = std::mem::take(&mut kernel.deadly);
    let (mut guest, _) = begin(&bits, &mut kernel, false);
    kernel.deadly = deadly;
    let mut seen = Seen::default();
    for turn in 0..1200 {
        let is_over = turn > 900;
        if is_over {
            kernel.deadly = 0;
            kernel.room.set(true);
            // What has begun goes on.
            (0..PROCESSORS).for_each(|processor| kernel.touch(processor));
            if kernel.discard.is_some() {
                kernel.discard();
            }
        } else {
            (0..random.below(4)).for_each(|_| kernel.act());
            kernel.room.set(random.below(8) > 0);
            if random.below(3) == 0
                && let Some(leaving) = guest.leaving().filter(|leaving| !leaving.is_busy())
            {
                leaving.ask(1 + random.below(PAGES as u64));
            }
        }
        let step = catch_unwind(AssertUnwindSafe(|| guest.step(&mut kernel, &Words, turn)));
        match step {
            Ok(next) => assert_ne!(next, Next::Gone),
            Err(killed) if killed.is::<Killed>() => {
                seen.killed += 1;
                let deadly = std::mem::take(&mut kernel.deadly);
                kernel.kept = [None; PAGES];
                (0..random.below(10)).for_each(|_| kernel.act());
                let (heir, lost) = begin(&bits, &mut kernel, true);
                if lost > 0 {
                    return Seen { lost, ..seen };
                }
                (guest, kernel.deadly) = (heir, deadly);
            }
            Err(other) => resume_unwind(other),
        }
    }
    let counts = guest.counts;
    seen.shared = u64::from(guest.leaving().is_some_and(|leaving| leaving.is_shared));
    assert!(kernel.others || seen.shared == 0, "nobody else maps the file");
    (seen.left, seen.stayed, seen.returned) = (counts.left, counts.stayed, counts.returned);
    seen.touches = kernel.touches;
    kernel.is_quiet = true;
    for _ in 0..60 {
        guest.step(&mut kernel, &Words, 0);
        if kernel.discard.is_some() {
            kernel.discard();
        }
        (0..PROCESSORS)
            .filter(|&of| kernel.waits[of].is_some())
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|of| kernel.touch(of));
    }
    assert!(kernel.waits.iter().all(Option::is_none), "somebody waits, and nothing will happen");
    guest.put_in_all();
    for _ in 0..200 {
        guest.step(&mut kernel, &Words, 0);
    }
    assert!(guest.is_complete(), "something is out");
    let wrong = (0..PAGES).find(|&page| kernel.pages[page].word.unwrap_or(0) != kernel.right[page]);
    assert_eq!(wrong, None, "a page at the end");
    assert!(kernel.kept.iter().all(Option::is_none), "what came back is kept still");
    seen
}

/// Seeds, unless `ZFOLD_SIM_SEEDS` says how many.
fn seeds() -> Range<u64> {
    let number = std::env::var("ZFOLD_SIM_SEEDS").ok();
    0..number.map_or(400, |number| number.parse().expect("ZFOLD_SIM_SEEDS is a number"))
}

#[test]
fn whatever_leaves_comes_back_as_it_was() {
    let mut all = Seen::default();
    for seed in seeds() {
        let seen = catch_unwind(|| run(seed, Twin::None)).unwrap_or_else(|_| panic!("seed {seed}"));
        all.left += seen.left;
        all.stayed += seen.stayed;
        all.returned += seen.returned;
        all.killed += seen.killed;
        all.lost += u64::from(seen.lost > 0);
        all.shared += seen.shared;
        all.touches += seen.touches;
    }
    println!("{all:?}");
    let Seen { left, stayed, returned, killed, lost, touches, shared } = all;
    let least = [left, stayed, returned, killed, lost, touches, shared].into_iter().min();
    assert!(least > Some(0), "{all:?}");
}

#[test]
fn every_broken_twin_of_pages_that_leave_is_caught() {
    let twins = [
        Twin::Unprotected,
        Twin::NoWake,
        Twin::StillOut,
        Twin::Core(Broken::LetGoLeaves),
        Twin::Core(Broken::LinkedLeaves),
        Twin::Core(Broken::PunchFirst),
        Twin::Core(Broken::OthersAreOurs),
        Twin::Core(Broken::GivenUpIsOut),
        Twin::Core(Broken::GapsAreAbsent),
    ];
    let is_missed = |twin: &Twin| (0..400).all(|seed| catch_unwind(|| run(seed, *twin)).is_ok());
    let missed: Vec<_> = twins.into_iter().filter(is_missed).collect();
    assert!(missed.is_empty(), "not caught: {missed:?}");
}

/// Every second page is in the file. One call for each would take most of the time.
#[test]
fn scattered_pages_are_protected_and_taken_out_by_a_call_for_each_region() {
    let mut kernel = Kernel::new(Twin::None, Random::new(1));
    kernel.is_quiet = true;
    for number in (0..PAGES).step_by(2) {
        let page = &mut kernel.pages[number];
        (page.word, page.mapped) = (Some(kernel.right[number]), true);
    }
    let (mut guest, _) = begin(&Kept::of(PAGES as u64), &mut kernel, false);
    for turn in 0..40 {
        if let Some(leaving) = guest.leaving().filter(|leaving| !leaving.is_busy()) {
            leaving.ask(PAGES as u64);
        }
        guest.step(&mut kernel, &Words, turn);
    }
    assert_eq!((guest.counts.left, kernel.present()), (PAGES as u64 / 2, Vec::new()));
    assert_eq!((kernel.protects, kernel.punches), (2, 2));
}
