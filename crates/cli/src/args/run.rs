//! The arguments of `zfold run`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{ValueEnum, ValueHint};
use zfold_pool::Allocator;
use zfold_store::CodecSpec;

use super::values::allocators;
use crate::shared::size::Size;

pub(super) const EXAMPLES: &str = "\
Examples:
  A build in half a GiB of memory:
    zfold run --limit 512MiB -- make -j4
  Whatever fits the container, without being killed at its limit:
    zfold run --limit auto -- ./batch
  Print what was compressed, and how long the program waited for it:
    zfold run --limit 512MiB --report -- ./simulation
  Compress better, and write what exceeds 256 MiB even so to a file:
    zfold run --limit 1GiB --codec zstd --store-limit 256MiB --backing /var/tmp/cold -- ./train
  In a script that must also work where runs are not permitted:
    zfold run --limit 512MiB --best-effort -- ./batch
  A report for a script:
    zfold run --report=json --report-file run.json -- ./batch; jq .fault_ns.p99 run.json

zfold check says whether runs work here, and what to do if they do not.

Needs Linux 6.8 on x86-64 or aarch64, and the right to handle page faults raised in the
kernel (userfaultfd). Root has it; either of these commands grants it to others:
    sudo setfacl -m u:$USER:rw /dev/userfaultfd      to this user, until the next boot
    sudo sysctl vm.unprivileged_userfaultfd=1        to everybody, until the next boot

The program and all its descendants share the limit. No code of zfold runs in them. They see the
same files, environment, terminal and signals as without it, but they are traced, so no debugger can
attach to them. zfold forwards signals to the program.

Exit status: the program's. If a signal ended the program, the same signal ends zfold. 125: zfold
itself failed and ended the program; 126: the program cannot be executed; 127: there is no such
program; 2: wrong usage.";

const MEMORY: &str = "Memory";
const REPORT: &str = "Report";

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// Most anonymous memory that the program and its descendants may have resident, without
    /// stacks; 4MiB or more. Compressed pages come on top. auto: what is free below the limit of
    /// the cgroup, compressed pages included [default: half of what this process can have].
    #[arg(long, value_name = "SIZE|auto", help_heading = MEMORY)]
    pub(crate) limit: Option<Limit>,

    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// How compressed pages are packed: fit, zsmalloc, z3fold or zbud.
    #[arg(long, value_parser = allocators(), default_value_t)]
    #[arg(help_heading = MEMORY)]
    pub(crate) allocator: Allocator,

    /// Run the program without a limit, with a warning, where managing memory is not permitted or
    /// not possible (see zfold check).
    #[arg(long)]
    pub(crate) best_effort: bool,

    /// Print a report to stderr at the end of the run, when the last descendant of the
    /// program ends. json has bytes and nanoseconds, schema zfold.run/1.
    #[arg(long, value_name = "FORMAT", value_enum, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "text", help_heading = REPORT)]
    pub(crate) report: Option<ReportFormat>,

    /// Write the report to FILE instead.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = REPORT)]
    pub(crate) report_file: Option<PathBuf>,

    /// The program and its arguments.
    #[arg(value_name = "PROGRAM", required = true, num_args = 1..)]
    #[arg(trailing_var_arg = true)]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Where compressed pages are kept.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct StoreArgs {
    /// Codec, optionally with a level: page, lz4, zstd, lzo; page:deep,
    /// zstd:3.
    #[arg(long, default_value = "page", help_heading = MEMORY)]
    pub(crate) codec: CodecSpec,

    /// Most memory for compressed pages and their tables. Pages beyond it go to the backing file;
    /// without one, zfold kills the processes [default: none].
    #[arg(long, value_name = "SIZE", help_heading = MEMORY)]
    pub(crate) store_limit: Option<Size>,

    /// File or block device for compressed pages that exceed --store-limit, or redis://HOST,.. or
    /// nbd://HOST/EXPORT for other machines. Its contents cannot be used after the run.
    #[arg(long, value_name = "PLACE", value_hint = ValueHint::FilePath, help_heading = MEMORY)]
    #[arg(requires = "store_limit")]
    pub(crate) backing: Option<PathBuf>,

    /// Size of the backing file [default: that of the file, or four times --limit if there is
    /// none].
    #[arg(long, value_name = "SIZE", help_heading = MEMORY, requires = "backing")]
    pub(crate) backing_size: Option<Size>,

    /// Overwrite the file of --backing even if zfold did not make it.
    #[arg(long, help_heading = MEMORY, requires = "backing")]
    pub(crate) force: bool,
}

/// How much may be resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// As much as there is room for, adjusted as that changes.
    Auto,
    /// This many bytes.
    Size(Size),
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            size => size.parse().map(Self::Size).map_err(|told| format!("{told}; or auto")),
        }
    }
}

/// How a report is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// A table for people.
    Text,
    /// One document, schema zfold.run/1.
    Json,
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::{Args, Command};
    use super::*;

    fn run(arguments: &[&str]) -> Result<RunArgs, clap::Error> {
        let line = ["zfold", "run"].iter().chain(arguments);
        match Args::try_parse_from(line)?.command {
            Command::Run(args) => Ok(*args),
            other => panic!("not a run: {other:?}"),
        }
    }

    #[test]
    fn options_end_where_the_program_begins() {
        for line in [&["--report", "--", "ls", "--report=x"][..], &["--report", "ls", "--report=x"]]
        {
            let args = run(line).expect("valid");
            assert_eq!(args.report, Some(ReportFormat::Text));
            assert_eq!(args.command, ["ls", "--report=x"]);
        }
        let args = run(&["--", "--strange", "--", "-x"]).expect("valid");
        assert_eq!(args.command, ["--strange", "--", "-x"]);
        assert!(run(&[]).is_err() && run(&["--"]).is_err());
    }
}
