//! Memory that is paged out: what it costs to send pages away, to fetch them back and to unmap them
//! from several processes at once.
//!
//! After "mm/zsmalloc: reduce lock contention in zs_free()" (2026): each process maps 256 MiB,
//! writes real pages, has them paged out, reads a random quarter, and all unmap at the same time.
//! Contestants are the kernel's swap to zram, zfold's regions, and `zfold run`, under which the
//! same program runs unchanged; a last one pages nothing out. A second section reads and writes
//! random pages of memory of which half may be resident.
//!
//! The processes are this program again ([`work`]). Whatever is missing is left out, and a remark
//! says so and why. There is no turn for warming up.

mod bench;
mod job;
pub(crate) mod memory;
mod side;
mod work;

use zfold_compare::latency::Latency;

use crate::experiment::content::PAGE_BYTES;
use crate::experiment::harness::turns::{Fault, Found, in_turns};
use crate::experiment::harness::{Published, Samples};
use crate::experiment::{Error, Outcome, Progress, Settings};
use bench::Bench;
pub use bench::NAME;
use job::{Done, Work};
use side::Side;
pub use work::work;

/// Processes that work at the same time.
const PROCESSES: [u32; 3] = [1, 2, 4];
/// Share of the pages that must leave, or there is nothing to measure.
const LEFT_MIN: f64 = 0.5;
/// The prefix of the metrics of the second section.
const RANDOM: &str = "random accesses";
const MUNMAP: &str = "munmap";

/// The kernel comes first, as the base.
const UNMAP_SIDES: [Side; 5] =
    [Side::Zram("lzo-rle"), Side::Zram("lz4"), Side::Region, Side::Run, Side::Resident];
const RANDOM_SIDES: [Side; 3] = [Side::Zram("lz4"), Side::Region, Side::Run];

/// The base of the series is compared with the kernel's zram, and its result with the side whose
/// processes share a pool with the same locks.
const PUBLISHED: [Published; 6] = [
    ("zram lzo-rle", 1, MUNMAP, 59.0),
    ("zram lzo-rle", 2, MUNMAP, 94.6),
    ("zram lzo-rle", 4, MUNMAP, 202.9),
    ("zfold run lz4", 1, MUNMAP, 56.0),
    ("zfold run lz4", 2, MUNMAP, 66.7),
    ("zfold run lz4", 4, MUNMAP, 110.6),
];

/// Runs the experiment.
///
/// # Errors
/// [`Error`] when a byte comes back wrong; not when something is missing. Swap, devices and
/// cgroups are gone afterwards, even if this process is killed.
pub fn run(settings: &Settings, progress: Progress<'_>) -> Result<Outcome, Error> {
    let (bench, mut found) = (Bench::new(settings)?, Found::nothing());
    let tell = |what: &str, share: f64| progress(what, share * 0.7);
    in_turns(settings, ("unmapping", &tell), &UNMAP_SIDES, &mut found, |side, repeat, samples| {
        PROCESSES
            .into_iter()
            .try_for_each(|processes| unmap(&bench, *side, processes, repeat, samples))
    })?;
    let tell = |what: &str, share: f64| progress(what, 0.7 + share * 0.3);
    in_turns(settings, (RANDOM, &tell), &RANDOM_SIDES, &mut found, |side, repeat, samples| {
        access(&bench, *side, repeat, samples)
    })?;
    let title = "paging out, faulting in and unmapping: zfold beside the kernel's swap";
    Ok(found.outcome(NAME, title, &PUBLISHED, remarks(&bench)))
}

/// Lets processes page out and unmap, and notes what that took.
fn unmap(
    bench: &Bench<'_>,
    side: Side,
    processes: u32,
    repeat: u32,
    samples: &mut Samples,
) -> Result<(), Fault> {
    let out = side != Side::Resident;
    let done = side.run(bench, processes, bench.pages, Work::Unmap { out }, repeat)?;
    let pages = bench.pages as f64;
    let mut push = |metric: &str, unit, value| {
        samples.push(&side.to_string(), processes, metric, unit, value);
    };
    if out {
        let left = done.left_pages as f64 / (pages * f64::from(processes));
        if left < LEFT_MIN {
            let percent = left * 100.0;
            let reason = format!("only {percent:.0} % of the pages leave when they are asked to");
            return Err(Fault::Missing(reason));
        }
        push("pageout", "us/page", mean(&done.page_out) * 1e6 / pages);
        push("pages that left", "%", left * 100.0);
        let faults = latency(&done).summary();
        push("fault p50", "us", faults.p50 as f64 / 1e3);
        push("fault p99", "us", faults.p99 as f64 / 1e3);
    }
    push(MUNMAP, "ms", mean(&done.unmap) * 1e3);
    push("munmap of a page", "ns", mean(&done.unmap) * 1e9 / pages);
    Ok(())
}

/// Lets a process access random pages, and notes what the faults took.
fn access(bench: &Bench<'_>, side: Side, repeat: u32, samples: &mut Samples) -> Result<(), Fault> {
    let work = Work::Access { times: bench.accesses };
    let done = side.run(bench, 1, bench.random_pages, work, repeat)?;
    let faults = latency(&done);
    samples.times(format!("{side}, {RANDOM}"), &faults);
    let mut push = |metric: &str, unit, value| {
        samples.push(&side.to_string(), 1, &format!("{RANDOM}: {metric}"), unit, value);
    };
    let microseconds = done.faults.iter().sum::<u64>() as f64 / 1e3;
    push("mean of a fault", "us", microseconds / done.faults.len().max(1) as f64);
    push("fault p50", "us", faults.summary().p50 as f64 / 1e3);
    push("fault p99", "us", faults.summary().p99 as f64 / 1e3);
    push("that fault", "%", done.faults.len() as f64 * 100.0 / bench.accesses as f64);
    Ok(())
}

fn latency(done: &Done) -> Latency {
    let mut latency = Latency::new();
    for &nanoseconds in &done.faults {
        latency.record(std::time::Duration::from_nanos(nanoseconds));
    }
    latency
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn remarks(bench: &Bench<'_>) -> Vec<String> {
    let mebibytes = |pages: usize| (pages * PAGE_BYTES) >> 20;
    vec![
        format!(
            "Workers are processes with {} MiB each, of distinct pages of real memory; times are \
             means of the processes, which take every step together. Paging out lasts until 99 % \
             of the pages have left, or no more do. A random quarter of them is read before the \
             unmapping, and compared in full.",
            mebibytes(bench.pages),
        ),
        "Published: 256 MiB a process on a Raspberry Pi 4B with 4 cores, zram lzo-rle; without the \
         series beside zram lzo-rle, with it beside zfold run, whose processes share one pool with \
         such locks. On x86 (i7-12700, 20 cores) it has, in ms, without and with: 11.7 and 9.8 \
         (one process), 24.1 and 17.2 (two), 63.0 and 45.3 (four)."
            .to_owned(),
        "A region belongs to one process and has a pool of its own; under zfold run one pool \
         serves all. `not paged out` is the cost of unmapping resident pages alone."
            .to_owned(),
        format!(
            "Random accesses: one process reads and writes {} random pages of {} MiB, of which {} \
             MiB may be resident; {} MiB more for the program itself where the limit counts it. An \
             access of more than 1 us is a fault. Every page that is read is compared.",
            bench.accesses,
            mebibytes(bench.random_pages),
            mebibytes(bench.random_pages / 2),
            Side::PROGRAM_BYTES >> 20,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::harness::testing::{check_left_out, tiny};

    #[test]
    fn without_the_program_all_is_named_as_left_out() {
        check_left_out(&run(&tiny(), &|_, _| ()).unwrap(), "unmapping", &UNMAP_SIDES);
    }

    #[test]
    fn every_published_figure_has_its_side() {
        for (variant, processes, ..) in PUBLISHED {
            assert!(UNMAP_SIDES.iter().any(|side| side.to_string() == variant), "{variant}");
            assert!(PROCESSES.contains(&processes));
        }
    }
}
