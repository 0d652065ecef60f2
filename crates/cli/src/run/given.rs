//! What this process was started with, and how it is released.

use std::io;

use rustix::stdio::{dup2_stdin, dup2_stdout};
use zfold_run::{Files, Inherited};

use super::failure::failed;
use crate::shared::exit::Failure;

/// What this process was started with.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) inherited: Inherited,
    pub(super) files: Files,
}

impl Given {
    /// Returns what this process was started with; to be called first.
    pub(super) fn take() -> Result<Self, Failure> {
        let inherited = Inherited::of_this_process();
        let files = Files::of_this_process().map_err(|error| failed("read /proc", &error))?;
        Ok(Self { inherited, files })
    }
}

/// Lets go of the standard input and output.
pub(super) fn release_streams() -> io::Result<()> {
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    Ok(())
}
