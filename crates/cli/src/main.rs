//! The `zfold` command: compressed memory in user space.
//!
//! Each subcommand goes in two steps: the typed arguments ([`args`]) become a validated plan, and
//! the plan is run. Results go to stdout, everything else to stderr. Exit status: 0 done, 1 failed,
//! 2 wrong usage, or that of a command that was run, and then 125 to 127 for zfold's own failures;
//! a reader that leaves early is no failure.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(target_arch = "x86_64"),
    expect(dead_code, unused_imports, reason = "what only `zfold run` uses")
)]

mod args;
mod compare;
mod disk;
mod lab;
#[cfg_attr(not(target_arch = "x86_64"), path = "run/elsewhere.rs")]
mod run;
mod settings;
mod shared;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use args::{Args, Command};
use shared::exit::{self, Failure};

fn main() -> ExitCode {
    match typed() {
        Ok(status) => status,
        Err(failure) => failure.report(),
    }
}

fn typed() -> Result<ExitCode, Failure> {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) if error.use_stderr() => return Err(Failure::refused(&error)),
        // Help and version arrive as errors, but were asked for.
        Err(text) => {
            return exit::finish_output(text.print()).map(|()| ExitCode::SUCCESS);
        }
    };
    match args.command {
        Command::Disk(args) => return disk::run(&args),
        Command::Run(args) => return run::run(&args),
        Command::Manage(args) => return run::manage(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Ctl(args) => disk::ctl::run(&args),
        Command::Lab(args) => lab::run(&args),
        Command::Stat(args) => disk::stat::run(&args),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), "zfold", &mut script);
            exit::write_output(&script)
        }
    }
    .map(|()| ExitCode::SUCCESS)
}
