//! Not merged yet.

use super::{Error, Outcome, Progress, Settings};

/// Name of the experiment, as on the command line.
pub const NAME: &str = "scale";

/// Returns the error that there is no such experiment yet.
///
/// # Errors
///
/// Always.
pub fn run(_: &Settings, _: Progress<'_>) -> Result<Outcome, Error> {
    Err(Error::Other("not merged yet".to_owned()))
}
