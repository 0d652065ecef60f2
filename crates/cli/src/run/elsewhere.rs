//! `zfold run` on processors that it is not for.

use std::process::ExitCode;

use crate::args::{AttachArgs, RunArgs};
use crate::check::need::{Need, Use};
use crate::shared::exit::Failure;

/// Refuses: a run works with the registers of a stopped thread.
pub(crate) fn run(_: &RunArgs) -> Result<ExitCode, Failure> {
    let line = "zfold run needs x86-64 or aarch64; use zfold disk or the library's Region";
    Err(Failure::new(line).with_status(125))
}

pub(crate) use run as manage;

/// Refuses, for the same reason.
pub(crate) fn attach(_: &AttachArgs) -> Result<ExitCode, Failure> {
    Err(Failure::new("zfold attach needs x86-64 or aarch64; limit the processes by a cgroup"))
}

pub(crate) use attach as manage_attached;

/// Returns what a run needs and is not here.
pub(crate) fn needs() -> Vec<Need> {
    let detail = "use zfold disk, or a Region of the library".to_owned();
    vec![Need::new::<&str>("x86-64 or aarch64", &[Use::Run], true, Err(detail), &[])]
}
