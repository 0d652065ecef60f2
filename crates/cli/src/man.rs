//! Manual pages, made from the declarations that `--help` shows.

use std::io;
use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use zfold_store::files::{Readers, replace};

use crate::args::Args;
use crate::shared::exit::Failure;

/// Writes the pages of zfold and of all its commands into a folder: `zfold.1`, `zfold-run.1` ...
pub(crate) fn run(folder: &Path) -> Result<(), Failure> {
    pages().iter().try_for_each(|page| write(page, folder)).map_err(|error| {
        Failure::new(format!(
            "cannot write manual pages into {}: {error}; name a folder that exists",
            folder.display()
        ))
    })
}

/// Returns zfold's commands, each under the name of its page.
fn pages() -> Vec<Command> {
    let mut zfold = without_help(Args::command());
    zfold.build();
    let mut pages = vec![zfold];
    let mut next = 0;
    while let Some(page) = pages.get(next) {
        let below: Vec<Command> =
            page.get_subcommands().filter(|command| !command.is_hide_set()).cloned().collect();
        pages.extend(below);
        next += 1;
    }
    pages
}

/// Takes out the command `help`, of which clap would make a page for each command.
fn without_help(command: Command) -> Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}

fn write(command: &Command, folder: &Path) -> io::Result<()> {
    let page = Man::new(command.clone())
        .source(concat!("zfold ", env!("CARGO_PKG_VERSION")))
        .manual("zfold manual");
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if command.has_subcommands() {
        page.render_subcommands_section(&mut text)?;
    }
    if let Some(after) = command.get_after_help() {
        after_help(&after.to_string()).to_writer(&mut text)?;
    }
    if command.get_name() != "zfold" {
        see_also().to_writer(&mut text)?;
    }
    let path = folder.join(page.get_filename());
    replace(&path, Readers::AsBefore, |out| out.write_all(&text))
}

/// Returns what stands behind the options in `--help` as sections. Indented lines stay as they are.
fn after_help(text: &str) -> Roff {
    let mut roff = Roff::new();
    let mut section = "";
    let mut is_kept = false;
    for line in text.lines() {
        let (heading, line) = if let Some(rest) = line.strip_prefix("Examples:") {
            ("EXAMPLES", rest)
        } else if let Some(rest) = line.strip_prefix("Exit status:") {
            ("EXIT STATUS", rest.trim_start())
        } else if section == "EXAMPLES" && line.starts_with(|first: char| first != ' ') {
            ("NOTES", line)
        } else {
            (section, line)
        };
        let kept = line.strip_prefix("  ");
        if is_kept && (heading != section || kept.is_none() && !line.is_empty()) {
            roff.control("EE", []);
            is_kept = false;
        }
        if heading != section {
            roff.control("SH", [heading]);
        } else if line.is_empty() && !is_kept {
            roff.control("PP", []);
        }
        section = heading;
        if kept.is_some() && !is_kept {
            roff.control("EX", []);
            is_kept = true;
        }
        if !line.is_empty() || is_kept {
            roff.text([roman(kept.unwrap_or(line))]);
        }
    }
    if is_kept {
        roff.control("EE", []);
    }
    roff
}

fn see_also() -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]);
    roff.control("BR", ["zfold", "(1)"]);
    roff
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
            "\n.SH EXAMPLES\n.EX\nA build in half a GiB of memory:\n",
            "\n  zfold run \\-\\-limit 512MiB \\-\\- make \\-j4\n",
            "\n.EE\n.SH NOTES\nzfold check says",
            "\n.SH \"EXIT STATUS\"\nthe program\\*(Aqs.",
            "\\fB\\-\\-store\\-limit\\fR",
        ] {
            assert!(run.contains(part), "no {part:?} in {run}");
        }
        assert!(!folder.path().join("zfold-man.1").exists(), "it is for packages");
        assert!(!folder.path().join("zfold-help.1").exists());
    }
}
