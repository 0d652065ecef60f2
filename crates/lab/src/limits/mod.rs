//! Programs under ever lower limits: how far a limit can go before a program mostly waits for its
//! pages.
//!
//! Each program runs alone first, which shows its peak memory and its output. Then it runs alone
//! and under `zfold run` in turns, with limits that are shares of that memory. The output must be
//! the same each time.

mod programs;

use std::fmt;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::time::Duration;

use crate::experiment::harness::Samples;
use crate::experiment::harness::turns::{Fault, Found, in_turns};
use crate::experiment::system::child::last_line;
use crate::experiment::system::scratch::Scratch;
use crate::experiment::system::tree;
use crate::experiment::system::zfold_run::{ZfoldRun, report_path, zfold};
use crate::experiment::{Error, Outcome, Progress, Settings};
use programs::{Program, programs};

/// Name of the experiment.
pub const NAME: &str = "limits";

/// Limits in percent of the memory that a program has alone.
const LIMITS: [u32; 5] = [75, 60, 50, 40, 30];
/// Those of a quick experiment.
const QUICK_LIMITS: [u32; 2] = [75, 50];

/// How long a program may take: slower runs are of no use.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program that has run alone.
#[derive(Debug)]
struct Known {
    program: Program,
    /// The most anonymous memory that it had.
    peak_bytes: u64,
    printed: String,
}

/// A program under a limit, or alone, which is the base.
#[derive(Debug)]
struct Variant<'a> {
    known: &'a Known,
    limit: Option<u32>,
}

impl Variant<'_> {
    /// Returns the name of the limit.
    fn limit(&self) -> String {
        self.limit.map_or_else(|| "alone".to_owned(), |percent| format!("{percent} %"))
    }
}

impl fmt::Display for Variant<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.limit {
            Some(percent) => write!(f, "{} at {percent} %", self.known.program.name),
            None => write!(f, "{} alone", self.known.program.name),
        }
    }
}

/// Runs the experiment.
///
/// # Errors
/// [`Error`] when a program prints something else under a limit, or fails there; not when a program
/// or `zfold run` does not work here.
pub fn run(settings: &Settings, progress: Progress<'_>) -> Result<Outcome, Error> {
    let (scratch, mut found) = (Scratch::new()?, Found::nothing());
    progress("the memory that programs take", 0.0);
    let mut known = Vec::new();
    for program in programs(settings, scratch.path())? {
        let name = program.name;
        match first(program) {
            Ok(one) => known.push(one),
            Err(Fault::Missing(reason) | Fault::Flawed(reason)) => {
                found.notes.push(format!("SKIPPED: {NAME}, {name}: {reason}."));
            }
            Err(Fault::Failed(error)) => return Err(error),
        }
    }
    let limits = if settings.quick { &QUICK_LIMITS[..] } else { &LIMITS };
    let variants: Vec<Variant<'_>> =
        known.iter().flat_map(|known| variants(known, limits)).collect();
    let tell = |what: &str, share: f64| progress(what, 0.05 + share * 0.95);
    in_turns(settings, (NAME, &tell), &variants, &mut found, |variant, _, samples| {
        once(settings, variant, &scratch, samples)
    })?;
    let peaks =
        known.iter().map(|one| format!("{} {} MiB", one.program.name, one.peak_bytes >> 20));
    let remarks = vec![
        "Each metric is a program's time from start to end, each variant its limit in percent of \
         the anonymous memory that it had alone; vs base is the slowdown. Every run printed the \
         same."
            .to_owned(),
        format!("Alone, they had at most: {}.", peaks.collect::<Vec<_>>().join(", ")),
    ];
    Ok(found.outcome(NAME, "programs under ever lower limits of zfold run", &[], remarks))
}

fn variants<'a>(known: &'a Known, limits: &[u32]) -> impl Iterator<Item = Variant<'a>> {
    let limits = std::iter::once(None).chain(limits.iter().copied().map(Some));
    limits.map(move |limit| Variant { known, limit }).collect::<Vec<_>>().into_iter()
}

/// Runs a program for the first time, and looks at its memory.
fn first(program: Program) -> Result<Known, Fault> {
    let ended = tree::run(&mut program.command(Command::new), PATIENCE, tree::anonymous_bytes)?;
    if !ended.status.success() {
        return Err(Fault::Missing(last_line(&ended.complaint)));
    }
    Ok(Known { program, peak_bytes: ended.peak, printed: ended.printed })
}

/// Runs a program once and notes how long it took.
fn once(
    settings: &Settings,
    variant: &Variant<'_>,
    scratch: &Scratch,
    samples: &mut Samples,
) -> Result<(), Fault> {
    let Variant { known: Known { program, peak_bytes, printed }, limit } = variant;
    let mut command = match limit {
        None => program.command(Command::new),
        Some(percent) => {
            let zfold = zfold(settings)?;
            let limit_bytes = peak_bytes * u64::from(*percent) / 100;
            if limit_bytes < ZfoldRun::LIMIT_MIN {
                let reason = "that is less than zfold run takes, 4 MiB (raise --scale)";
                return Err(Fault::Missing(reason.to_owned()));
            }
            let report = &report_path(scratch.path());
            let (allocator, codec) = ("fit", "page");
            let run = ZfoldRun { zfold, limit_bytes, allocator, codec, report };
            program.command(|shell| run.command(shell))
        }
    };
    let ended = tree::run(&mut command, PATIENCE, |_| None)?;
    let complaint = last_line(&ended.complaint);
    match ended.status.code() {
        Some(0) if ended.printed == *printed => {}
        Some(ZfoldRun::NOT_RUN) => return Err(Fault::Missing(complaint)),
        None if ended.status.signal() == Some(9) && ended.cost.real > PATIENCE.as_secs_f64() => {
            let reason = format!("it is not done after {} s", PATIENCE.as_secs());
            return Err(Fault::Missing(reason));
        }
        Some(0) => {
            let what = format!("{variant}: '{}' instead of '{printed}'", ended.printed);
            return Err(Error::WrongBytes { experiment: NAME, what }.into());
        }
        _ => return Err(Error::Other(format!("{NAME}: {variant} fails: {complaint}")).into()),
    }
    samples.push(&variant.limit(), 1, program.name, "s", ended.cost.real);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::harness::testing::tiny;

    #[test]
    fn programs_run_alone_and_limits_are_named_as_left_out_without_zfold() {
        let outcome = run(&tiny(), &|_, _| ()).unwrap();
        let named = |what: &str| outcome.remarks.iter().any(|remark| remark.starts_with(what));
        let mut ran = 0;
        for program in programs(&tiny(), Scratch::new().unwrap().path()).unwrap() {
            if named(&format!("SKIPPED: {NAME}, {}: ", program.name)) {
                continue;
            }
            ran += 1;
            let figure = outcome.figures.iter().find(|figure| figure.metric == program.name);
            assert_eq!(figure.map(|figure| &*figure.variant), Some("alone"), "{}", program.name);
            assert!(named(&format!("SKIPPED: {NAME}, {} at 50 %: ", program.name)));
        }
        // Every Debian has sort.
        assert!(ran > 0, "{:?}", outcome.remarks);
    }

    #[test]
    fn limits_are_shares_and_alone_comes_first() {
        let program = programs(&tiny(), Scratch::new().unwrap().path()).unwrap().remove(0);
        let known = Known { program, peak_bytes: 1 << 20, printed: String::new() };
        let names: Vec<String> = variants(&known, &LIMITS).map(|one| one.limit()).collect();
        assert_eq!(names, ["alone", "75 %", "60 %", "50 %", "40 %", "30 %"]);
    }
}
