//! `zfold run` on processors that it is not for.

use std::process::ExitCode;

use crate::args::RunArgs;
use crate::shared::exit::Failure;

/// Refuses: a run works with the registers of a stopped thread.
pub(crate) fn run(_: &RunArgs) -> Result<ExitCode, Failure> {
    let line = "zfold run needs x86-64; on this processor use zfold disk or the library's Region";
    Err(Failure::new(line).with_status(125))
}

pub(crate) use run as manage;
