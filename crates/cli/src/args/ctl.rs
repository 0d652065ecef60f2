//! The arguments of `zfold ctl`.

use std::path::PathBuf;

use clap::{Subcommand, ValueHint};

use crate::settings;

pub(super) const EXAMPLES: &str = "\
Examples:
  All knobs and their values:
    zfold ctl get
  Limit memory to 1 GiB, and allow 4 GiB more to be written back:
    zfold ctl set mem_limit=1GiB writeback_limit=4GiB
  Write back pages that have not been used for an hour:
    zfold ctl idle 1h
    zfold ctl writeback type=idle
  Compress the largest pages again with the first codec of --recompress:
    zfold ctl recompress type=huge max_pages=10000
  Save a snapshot while clients continue:
    zfold ctl save /var/tmp/disk.zfs
  One of several disks, by the control socket of its process:
    zfold ctl --control /run/zfold/a/control.sock compact

  A run, by its number (zfold ps): at most 1 GiB from now on
    zfold ctl --pid 4711 set limit=1GiB

Exit status: 0 done, 1 failed, 2 wrong usage.";

/// Selects the server.
#[derive(Debug, clap::Args)]
pub(crate) struct Target {
    /// Control socket of the server [default: that of this user's only server].
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, global = true)]
    pub(crate) control: Option<PathBuf>,

    /// Number of a run, as zfold ps shows it; a run supports get, set limit=SIZE, set
    /// store-limit=SIZE, set codec=NAME, page-out and stat.
    #[arg(long, global = true, conflicts_with = "control")]
    pub(crate) pid: Option<u32>,
}

#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = false)]
pub(crate) struct CtlArgs {
    #[command(flatten)]
    pub(crate) target: Target,

    /// Print the result as JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) command: CtlCommand,
}

/// The request. The server parses the words after it, as zram parses those of its files.
#[derive(Debug, Subcommand)]
pub(crate) enum CtlCommand {
    /// Show the knobs.
    Get,
    #[command(about = settings::help())]
    Set {
        /// A knob and its value, such as mem_limit=512MiB.
        #[arg(value_name = "NAME=VALUE", required = true)]
        words: Vec<String>,
    },
    /// Compact the pool and return memory to the system.
    Compact,
    /// Mark pages that have not been used for AGE as idle.
    Idle {
        /// An age, such as 10min, or all.
        #[arg(value_name = "AGE|all")]
        age: String,
    },
    /// Write pages to the backing file: type=idle, huge, huge_idle, incompressible or lru;
    /// page_index=N, page_indexes=LOW-HIGH; max_pages=N.
    Writeback {
        /// Which pages, and how many.
        #[arg(value_name = "NAME=VALUE", required = true)]
        words: Vec<String>,
    },
    /// Recompress pages: type=idle, huge, huge_idle or all; threshold=BYTES; max_pages=N;
    /// algo=CODEC.
    Recompress {
        /// Which pages, how many and how.
        #[arg(value_name = "NAME=VALUE")]
        words: Vec<String>,
    },
    /// Write a snapshot of the contents to a file, or to an S3 object.
    Save {
        /// The file, or s3://BUCKET/KEY; the server's environment names the S3 endpoint.
        #[arg(value_name = "PLACE", value_hint = ValueHint::FilePath)]
        place: PathBuf,
    },
    /// Train a dictionary on the contents and write it to a file, for --dictionary.
    Train {
        /// The file.
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// Longest dictionary [default: 16KiB].
        max: Option<String>,
    },
    /// Evict all memory of a run that can be compressed (with --pid).
    PageOut,
    /// Show the statistics as JSON (zfold stat shows them as tables).
    Stat,
    /// Shut the server down cleanly.
    Shutdown,
}
