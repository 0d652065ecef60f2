//! `zfold lab`: from typed arguments to experiments, their runs and their reports.

use std::io;

use zfold_lab::experiment::machine::Machine;
use zfold_lab::experiment::{Error, Outcome, report};
use zfold_lab::{Experiment, calls, pageout};

use crate::args::{Format, LabArgs};
use crate::shared::exit::{self, Failure};
use crate::shared::file::NewFile;
use crate::shared::progress::Progress;

/// Runs the experiments that were asked for and writes what they found.
pub(crate) fn run(args: &LabArgs) -> Result<(), Failure> {
    if let Some((experiment, job)) = args.job() {
        let (input, output) = (&mut io::stdin().lock(), &mut io::stdout().lock());
        let done = match experiment {
            Experiment::Calls => calls::work(job, output),
            _ => pageout::work(job, input, output),
        };
        return done.map_err(|error| Failure::new(error.to_string()));
    }
    if args.html.is_some() && args.html == args.output {
        return Err(Failure::usage("--html and --output name the same file: give two names"));
    }
    // Tried before the work, which a misspelt name must not cost.
    let page = args.html.as_deref().map(NewFile::at).transpose()?;
    let output = args.output.as_deref().map(NewFile::at).transpose()?;
    let outcomes = outcomes(args)?;
    let machine = Machine::this();
    if let Some(page) = page {
        page.write(&report::html(&machine, &outcomes))?;
    }
    let text = match args.format {
        Format::Json => report::json(&machine, &outcomes),
        Format::Csv => report::csv(&outcomes),
        Format::Table => report::table(&machine, &outcomes),
    };
    match output {
        Some(file) => file.write(&text),
        None => exit::write_output(text.as_bytes()),
    }
}

/// Runs the experiments one after the other, with a progress bar.
fn outcomes(args: &LabArgs) -> Result<Vec<Outcome>, Failure> {
    let (settings, experiments) = (args.settings(), args.experiments());
    let bar = Progress::new();
    let run = |(done, experiment): (usize, &Experiment)| {
        let show = |what: &str, share: f64| {
            let share = (done as f64 + share) / experiments.len() as f64;
            bar.show(&format!("{experiment}: {what}"), share);
        };
        experiment.run(&settings, &show).map_err(|error| failure(*experiment, &error))
    };
    experiments.iter().enumerate().map(run).collect()
}

/// Returns what went wrong in an experiment, and the remedy where there is one.
fn failure(experiment: Experiment, error: &Error) -> Failure {
    match error {
        // It names the experiment itself.
        Error::WrongBytes { .. } => Failure::new(error.to_string()),
        Error::Alloc(_) | Error::Store(_) => Failure::new(format!(
            "{experiment}: {error}; free some memory or give a smaller --scale"
        )),
        _ => Failure::new(format!("{experiment}: {error}")),
    }
}
