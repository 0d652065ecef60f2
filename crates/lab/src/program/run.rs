//! From typed arguments to experiments, their runs and their reports.

use std::io;

use zfold_console::clean::clean_lines;
use zfold_console::exit::{self, Failure};
use zfold_console::file::NewFile;
use zfold_console::progress::Progress;
use zfold_lab::experiment::machine::Machine;
use zfold_lab::experiment::{Error, Outcome, report};
use zfold_lab::{Experiment, pageout};

use crate::args::{Format, LabArgs};

/// Runs the requested experiments and writes their outcomes.
pub(crate) fn run(args: &LabArgs) -> Result<(), Failure> {
    if args.html.is_some() && args.html == args.output {
        return Err(Failure::usage("--html and --output name the same file: give two names"));
    }
    // Tried before the work, which a misspelt name must not cost.
    let page = args.html.as_deref().map(NewFile::at).transpose()?;
    let output = args.output.as_deref().map(NewFile::at).transpose()?;
    let machine = Machine::this();
    // People are shown what there is at once; a document is written whole.
    let shows = args.format == Format::Table && output.is_none();
    let outcomes = outcomes(args, shows.then_some(&machine))?;
    if let Some(page) = page {
        page.write(&clean_lines(&report::page(&machine, &outcomes)))?;
    }
    let text = match args.format {
        Format::Json => report::json(&machine, &outcomes),
        Format::Table => clean_lines(&report::table(&machine, &outcomes)),
    };
    match output {
        Some(file) => file.write(&text),
        None if shows => Ok(()),
        None => exit::write_data(text.as_bytes()),
    }
}

/// Does the part of an experiment that it has started this process for.
pub(crate) fn process(experiment: &str, job: &str) -> Result<(), Failure> {
    let (input, output) = (&mut io::stdin().lock(), &mut io::stdout().lock());
    let done = match experiment {
        pageout::NAME => pageout::work(job, input, output),
        other => return Err(Failure::usage(format!("{other} starts no process of its own"))),
    };
    done.map_err(|error| Failure::new(error.to_string()))
}

/// Runs the experiments one after the other, with a progress bar. With a machine to name, tables
/// go to stdout as soon as they are there.
fn outcomes(args: &LabArgs, shown: Option<&Machine>) -> Result<Vec<Outcome>, Failure> {
    let (experiments, bar) = (args.experiments(), Progress::begin());
    let run = |(done, experiment): (usize, &Experiment)| {
        let show = |what: &str, share: f64| {
            let share = (done as f64 + share) / experiments.len() as f64;
            bar.show(&format!("{experiment}: {what}"), share);
        };
        let outcome = experiment.run(&args.settings(), &show);
        let outcome = outcome.map_err(|error| failure(experiment, &error))?;
        if let Some(machine) = shown {
            let text = report::table(machine, std::slice::from_ref(&outcome));
            let between = if done > 0 { "\n\n" } else { "" };
            bar.beside(|| exit::write_text(&format!("{between}{text}")))?;
        }
        Ok(outcome)
    };
    experiments.iter().enumerate().map(run).collect()
}

/// Returns what went wrong in an experiment, and the remedy where there is one.
fn failure(experiment: &Experiment, error: &Error) -> Failure {
    match error {
        // It names the experiment itself.
        Error::WrongBytes { .. } => Failure::new(error.to_string()),
        Error::Alloc(_) | Error::Store(_) => Failure::new(format!(
            "{experiment}: {error}; free some memory or give a smaller --scale"
        )),
        _ => Failure::new(format!("{experiment}: {error}")),
    }
}
