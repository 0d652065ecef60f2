//! The program `zfold-lab`, which `zfold lab` starts: experiments by name, their tables and pages.
//!
//! Results go to stdout, everything else to stderr. Exit status: 0 done, 1 failed, 2 wrong usage; a
//! reader that leaves early is no failure.

#![forbid(unsafe_code)]

mod args;
mod run;

use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ErrorKind;
use zfold_console::exit::{self, Failure};
use zfold_lab::Experiment;

use args::LabArgs;

fn main() -> ExitCode {
    match typed() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn typed() -> Result<(), Failure> {
    if let Some(done) = process() {
        return done;
    }
    match LabArgs::try_parse() {
        Ok(args) => run::run(&args),
        Err(error) if error.kind() == ErrorKind::MissingRequiredArgument => {
            let names = Experiment::ALL.map(|experiment| experiment.name).join(", ");
            let line = format!("zfold lab needs one of {names}, all (see zfold lab --help)");
            Err(Failure::usage(line))
        }
        Err(error) if error.use_stderr() => Err(Failure::refused(&error)),
        // Help and version arrive as errors, but were requested.
        Err(text) => exit::finish_output(text.print()),
    }
}

/// Does what an experiment starts this program for, if it did: no command of people, so it is in no
/// help.
fn process() -> Option<Result<(), Failure>> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != "process" {
        return None;
    }
    let mut word = || arguments.next()?.into_string().ok();
    Some(run::process(&word()?, &word()?))
}
