//! `zfold run` on processors that it is not for.

use std::process::ExitCode;

use crate::args::RunArgs;
use crate::exit::Failure;

/// Refuses: a run works with the registers of a stopped thread.
pub(crate) fn run(_: &RunArgs) -> Result<ExitCode, Failure> {
    Err(Failure::new(
        "zfold run is for x86-64; on this processor use zfold disk, or a Region of the library",
    )
    .with_status(125))
}

/// Refuses the same.
pub(crate) fn manage(_: &RunArgs) -> Result<ExitCode, Failure> {
    Err(Failure::new("zfold run is for x86-64").with_status(125))
}
