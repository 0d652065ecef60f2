//! Manual pages, made from the declarations that `--help` shows.

use std::path::Path;

use clap::{Command, CommandFactory as _};

use crate::args::Args;
use crate::shared::exit::Failure;

/// Writes the pages of zfold and of all its commands into a folder: `zfold.1`, `zfold-run.1` ...
pub(crate) fn run(folder: &Path) -> Result<(), Failure> {
    clap_mangen::generate_to(without_help(Args::command()), folder).map_err(|error| {
        Failure::new(format!(
            "cannot write manual pages into {}: {error}; name a folder that exists",
            folder.display()
        ))
    })
}

/// Takes out the command `help`, of which clap would make a page for each command.
fn without_help(command: Command) -> Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_its_examples() {
        let folder = tempfile::tempdir().expect("a folder");
        run(folder.path()).expect("written");
        let page = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect(name);
        for name in ["zfold.1", "zfold-run.1", "zfold-disk.1", "zfold-ctl-set.1"] {
            assert!(page(name).starts_with(".ie "), "{name}: {}", page(name));
        }
        let run = page("zfold-run.1");
        for part in [
            ".SH NAME\nzfold\\-run \\- Run a program",
            "\n    zfold run \\-\\-limit 512MiB \\-\\- make \\-j4\n",
            "\nExit status: the program\\*(Aqs.",
            "\\fB\\-\\-store\\-limit\\fR",
        ] {
            assert!(run.contains(part), "no {part:?} in {run}");
        }
        assert!(!folder.path().join("zfold-man.1").exists(), "it is for packages");
        assert!(!folder.path().join("zfold-help.1").exists());
    }
}
