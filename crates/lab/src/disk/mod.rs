//! Block devices of compressed memory: how fast they serve, and how much memory they hold.
//!
//! Four comparisons, each against what does the same job:
//!
//! - `nbd`: servers of NBD under random 4 KiB requests by fio;
//! - `memory`: the memory of the servers and of the kernel's zram with the same data;
//! - `loop_device`: a loop device over a FUSE file;
//! - `direct`: a store in this process against the kernel's zram.
//!
//! Whatever is missing (a tool, the right to use it) is left out, and a remark says so and why. In
//! each repeat the contestants run one after the other; there is no turn for warming up, since
//! each device is filled before it is measured. fio compares a part of what each device gave
//! back: a wrong byte of zfold's or the kernel's ends the experiment, one of another program is
//! named.

mod bench;
mod direct;
mod fio;
mod loop_device;
mod memory;
mod nbd;
mod serve;

use crate::experiment::harness::turns::{Fault, Found};
use crate::experiment::{Error, Figure, Outcome, Progress, Settings};
use bench::Bench;
pub use bench::NAME;
use fio::Fio;

/// The next step, for people who wait for it.
pub const PARTS: &str = "requests over NBD, memory held, a loop device, the library beside zram";

type Section = fn(&Bench<'_>, Progress<'_>, &mut Found) -> Result<(), Error>;

/// Runs the experiment; `part` gets the figures of each comparison as soon as it is done.
///
/// # Errors
/// [`Error`] when a byte comes back wrong from zfold or the kernel, or a device that is there
/// fails; not when something is missing. No server or mount is left behind but if
/// this process is killed, and no device even then.
pub fn run(
    settings: &Settings,
    progress: Progress<'_>,
    part: &mut dyn FnMut(&[Figure]),
) -> Result<Outcome, Error> {
    const BY_FIO: [Section; 3] = [nbd::run, memory::run, loop_device::run];
    const ALL: f64 = BY_FIO.len() as f64 + 1.0;
    let (bench, mut all, mut figures) = (Bench::new(settings)?, Found::nothing(), Vec::new());
    let mut run = |at: usize, section: Section, notes: &mut Vec<String>| -> Result<(), Error> {
        let tell = |what: &str, share: f64| progress(what, (at as f64 + share) / ALL);
        let mut found = Found::default();
        section(&bench, &tell, &mut found)?;
        let of_section = found.samples.figures(NAME, &[]);
        part(&of_section);
        figures.extend(of_section);
        notes.append(&mut found.notes);
        Ok(())
    };
    match Fio::available() {
        Ok(()) => {
            for (at, section) in BY_FIO.into_iter().enumerate() {
                run(at, section, &mut all.notes)?;
            }
        }
        Err(Fault::Missing(reason) | Fault::Flawed(reason)) => {
            all.notes.push(format!("SKIPPED: all but two threads: {reason}."));
        }
        Err(Fault::Failed(error)) => return Err(error),
    }
    run(BY_FIO.len(), direct::run, &mut all.notes)?;
    let title = "block devices of compressed memory: how fast they serve, what they hold";
    Ok(Outcome { figures, ..all.outcome(NAME, title, &[], remarks(&bench)) })
}

fn remarks(bench: &Bench<'_>) -> Vec<String> {
    let Bench { span_bytes, time, overwriting, .. } = bench;
    vec![
        format!(
            "Devices have {} MiB, are filled first, and get random requests of 4 KiB for {:.1} s; \
             each page that fio writes is new and half random, half zeros. Workers are requests in \
             flight; in the figures of two threads, threads. fio takes a part of the same \
             processors.",
            span_bytes >> 20,
            time.as_secs_f64(),
        ),
        format!(
            "Memory is that of the whole server process, or zram's mem_used_total: after the \
             device was filled once, and after {:.1} s of random overwriting with 32 requests in \
             flight, of which a faster server gets more. The ideal is the sum of the pages' LZ4 \
             sizes, from a sample.",
            overwriting.as_secs_f64(),
        ),
        "The loop device is the same for both, past the page cache; qemu-storage-daemon serves a \
         file in a tmpfs, uncompressed."
            .to_owned(),
        direct::remark(bench),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::harness::testing::{check_outcome, tiny, value};

    #[test]
    fn what_is_there_is_measured_and_what_is_not_is_named() {
        let mut told = Vec::new();
        let outcome = run(&tiny(), &|_, _| (), &mut |part| told.extend_from_slice(part)).unwrap();
        assert_eq!(told, outcome.figures);
        check_outcome(&outcome, NAME, &[]);
        assert!(value(&outcome, "store lz4", "two threads: reads and writes") > 0.0);
        let contestants = [
            "zfold disk lz4",
            "zfold disk zstd",
            "nbdkit memory zstd",
            "nbdkit memory sparse",
            "qemu-storage-daemon tmpfs",
            "zram lz4",
        ];
        let skipped: Vec<&String> =
            outcome.remarks.iter().filter(|remark| remark.starts_with("SKIPPED: ")).collect();
        for contestant in contestants {
            let measured = outcome.figures.iter().any(|figure| figure.variant == contestant);
            let named = skipped.iter().any(|r| r.contains(contestant) || r.contains("fio"));
            assert!(measured || named, "{contestant}: {skipped:?}");
        }
        skipped.iter().for_each(|remark| eprintln!("{remark}"));
    }

    #[test]
    fn sizes_and_times_shrink_with_the_experiment() {
        let of = |settings: &Settings| {
            let bench = Bench::new(settings).unwrap();
            (bench.span_bytes >> 20, bench.time.as_millis(), bench.overwriting.as_millis())
        };
        let full = Settings { scale: 1.0, quick: false, ..tiny() };
        assert_eq!(of(&full), (1024, 3000, 60_000));
        assert_eq!(of(&Settings { quick: true, ..full }), (64, 400, 3000));
        assert_eq!(of(&tiny()), (10, 100, 600));
    }
}
