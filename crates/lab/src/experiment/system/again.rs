//! This program again, as a process of an experiment: its job is the last argument of the hidden
//! command `zfold-lab process EXPERIMENT JOB`, in JSON, and its answer a line.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::experiment::harness::turns::Fault;
use crate::experiment::{Error, Settings};

/// Returns the program.
///
/// # Errors
/// [`Fault::Missing`] if there is no such experiment.
pub(crate) fn program(settings: &Settings) -> Result<&Path, Fault> {
    let unknown = || Fault::Missing("the program zfold-lab is not known".to_owned());
    settings.lab.as_deref().ok_or_else(unknown)
}

/// Returns the arguments of the hidden command before the job.
pub(crate) const fn command(experiment: &str) -> [&str; 2] {
    ["process", experiment]
}

/// Returns a job or an answer as a line without its end.
pub(crate) fn line(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data is JSON")
}

/// Reads an answer; `None` if it is none.
pub(crate) fn answer<'a, T: Deserialize<'a>>(line: &'a str) -> Option<T> {
    serde_json::from_str(line.trim_end()).ok()
}

/// Reads a job.
///
/// # Errors
/// It is none: the command was used by other means.
pub(crate) fn job<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_json::from_str(text)
        .map_err(|_| Error::Other("this command is for the program itself only".to_owned()))
}
