//! The part that all builds share: the project, and where it is built.

use std::process::Command;

use super::project::{Objects, Project};
use crate::experiment::harness::sized;
use crate::experiment::system::scratch::Scratch;
use crate::experiment::{Error, Settings};

/// Name of the experiment.
pub const NAME: &str = "build";

/// Compilers that run at the same time.
pub(super) const JOBS: u32 = 4;

/// The part that all builds share.
#[derive(Debug)]
pub(super) struct Bench<'a> {
    pub(super) settings: &'a Settings,
    /// The project, reports and the swap file; of its owner only.
    pub(super) scratch: Scratch,
    pub(super) project: Project,
    /// C files of the generated project.
    pub(super) files: usize,
}

/// The build that nothing limits.
#[derive(Debug)]
pub(super) struct Reference {
    /// Most anonymous memory that it had.
    pub(super) peak_bytes: u64,
    /// Its result.
    pub(super) objects: Objects,
}

impl<'a> Bench<'a> {
    pub(super) fn new(settings: &'a Settings) -> Result<Self, Error> {
        let scratch = Scratch::new()?;
        // One folder for all builds, since objects may name it.
        let (folder, files) = (scratch.path().join("project"), sized(settings, 60, 4));
        let project = match &settings.project {
            Some(given) => Project::given(given, folder),
            None => Project::generated(files, settings.seed, folder),
        };
        Ok(Self { settings, scratch, project, files })
    }

    /// Returns a command that builds the project; `command` runs a program.
    pub(super) fn build(&self, command: impl FnOnce(&str) -> Command) -> Command {
        let mut command = command("make");
        command.args(self.project.make_args(JOBS));
        // Times and names of this machine, which projects may put into their objects.
        command.env("SOURCE_DATE_EPOCH", "0").env("KBUILD_BUILD_TIMESTAMP", "@0");
        command.env("KBUILD_BUILD_USER", "zfold").env("KBUILD_BUILD_HOST", "lab");
        command.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").env("LC_ALL", "C");
        command
    }
}
