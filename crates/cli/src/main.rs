//! The `zfold` command: compressed memory in user space.
//!
//! Each subcommand goes in two steps: the typed arguments ([`args`]) become a validated plan, and
//! the plan is run. Results go to stdout, everything else to stderr. Exit status: 0 done, 1 failed,
//! 2 wrong usage, or that of a command that was run, and then 125 to 127 for zfold's own failures;
//! a reader that leaves early is no failure.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(any(target_arch = "aarch64", target_arch = "x86_64")),
    expect(dead_code, unused_imports, reason = "what only `zfold run` uses")
)]

mod args;
mod check;
mod compare;
mod completions;
mod control;
mod demo;
mod disk;
#[cfg(test)]
mod documents;
mod guest;
mod lab;
#[cfg(any(test, feature = "man"))]
mod man;
mod ps;
#[cfg_attr(not(any(target_arch = "aarch64", target_arch = "x86_64")), path = "run/elsewhere.rs")]
mod run;
mod settings;
mod shared;
mod stat;
mod top;
mod watched;

use std::process::ExitCode;

use clap::Parser as _;

use args::{Args, Command};
use shared::exit::{self, Failure};
use shared::rights;

fn main() -> ExitCode {
    match rights::give_up_those_of_the_file().and_then(|()| typed()) {
        Ok(status) => status,
        Err(failure) => failure.report(),
    }
}

fn typed() -> Result<ExitCode, Failure> {
    if let Some(internal) = internal() {
        return internal;
    }
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) if error.use_stderr() => return Err(Failure::refused(&error)),
        // Help and version arrive as errors, but were requested.
        Err(text) => {
            return exit::finish_output(text.print()).map(|()| ExitCode::SUCCESS);
        }
    };
    match args.command {
        Command::Disk(args) => return disk::run(*args),
        Command::Run(args) => return run::run(&args),
        Command::Attach(args) => return run::attach(&args),
        Command::Guest(args) => return guest::run(&args),
        Command::Check(args) => return check::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Ctl(args) => disk::ctl::run(&args),
        Command::Lab { arguments } => Err(lab::run(&arguments)),
        #[cfg(feature = "man")]
        Command::Man { folder } => man::run(&folder),
        Command::Ps(args) => ps::run(&args),
        Command::Stat(args) => stat::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Completions { shell } => completions::run(shell),
    }
    .map(|()| ExitCode::SUCCESS)
}

/// Does what zfold starts itself for, if this process was started by zfold: no command of people,
/// so it is in no help and no completion.
fn internal() -> Option<Result<ExitCode, Failure>> {
    let mut arguments = std::env::args_os().skip(1);
    let command = match arguments.next()?.to_str()? {
        "manage" => "run",
        "manage-attached" => "attach",
        demo::NAME => {
            let arguments: Option<Vec<String>> =
                arguments.map(|argument| argument.into_string().ok()).collect();
            return Some(demo::work(&arguments.unwrap_or_default()).map(|()| ExitCode::SUCCESS));
        }
        _ => return None,
    };
    let arguments = ["zfold".into(), command.into()].into_iter().chain(arguments);
    match Args::try_parse_from(arguments) {
        Ok(Args { command: Command::Run(args) }) => Some(run::manage(&args)),
        Ok(Args { command: Command::Attach(args) }) => Some(run::manage_attached(&args)),
        Ok(_) => None,
        Err(error) => Some(Err(Failure::refused(&error))),
    }
}
