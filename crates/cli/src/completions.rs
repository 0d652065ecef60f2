//! `zfold completions`: what shells load to complete zfold's arguments.

use clap::CommandFactory as _;
use clap_complete::{Shell, generate};

use crate::args::Args;
use crate::shared::exit::{self, Failure};

/// Writes the script for a shell to stdout.
pub(crate) fn run(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    generate(shell, &mut Args::command(), "zfold", &mut script);
    exit::write_data(&script)
}
