//! The meaning of the same arguments for front and manager.

use zfold_run::Running;

use crate::args::AttachArgs;
use crate::run::plan::RunPlan;
use crate::shared::exit::Failure;

/// Returns how processes are to be managed; they are the run's program.
pub(super) fn plan(args: &AttachArgs, running: &[Running]) -> Result<RunPlan, Failure> {
    RunPlan::new(&args.as_run(names(running).into()))
}

/// Returns what processes are called.
pub(super) fn names(running: &[Running]) -> String {
    let names: Vec<_> =
        running.iter().map(|one| format!("{} ({})", one.program, one.pid)).collect();
    names.join(", ")
}
