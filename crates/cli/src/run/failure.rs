//! How a run fails, and with what status.

use std::io;

use zfold_run::remedy;

use super::plan::RunPlan;
use crate::shared::exit::Failure;

/// Exit status when zfold itself failed.
pub(super) const FAILED: u8 = 125;
/// Exit status when the program cannot be executed.
pub(super) const NOT_EXECUTABLE: u8 = 126;
/// Exit status when there is no such program.
pub(super) const NOT_FOUND: u8 = 127;

/// Returns the failure to do something that zfold needs.
pub(super) fn failed(what: &str, error: &io::Error) -> Failure {
    Failure::new(format!("cannot {what}: {error}{}", remedy(error)))
}

/// Returns the failure to start the program, with the status that a shell gives it.
pub(super) fn cannot_start(plan: &RunPlan, error: &io::Error) -> Failure {
    let status = match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    };
    let program = plan.program().display();
    Failure::new(format!("cannot run '{program}': {error}")).with_status(status)
}

/// Returns the failure of a run: zfold's own, unless it has another status.
pub(super) fn of_a_run(failure: Failure) -> Failure {
    if failure.status() == 1 { failure.with_status(FAILED) } else { failure }
}
