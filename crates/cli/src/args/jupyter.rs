//! The arguments of `zfold jupyter`.

use std::path::PathBuf;

use clap::{Subcommand, ValueHint};
use zfold_store::CodecSpec;

use super::complete;
use crate::shared::size::Size;

pub(super) const EXAMPLES: &str = "\
Examples:
  Notebooks of at most 4 GiB, each:
    zfold jupyter install --limit 4GiB
  A second kernel, of another environment and a denser codec:
    zfold jupyter install --limit 1GiB --codec zstd --name small --python ~/venv/bin/python
  For everybody who uses an environment, not for this user:
    zfold jupyter install --limit 4GiB --prefix ~/venv
  Remove it again:
    jupyter kernelspec remove zfold

Exit status: 0 done, 1 failed, 2 wrong usage.";

#[derive(Debug, clap::Args)]
pub(crate) struct JupyterArgs {
    #[command(subcommand)]
    pub(crate) command: JupyterCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum JupyterCommand {
    /// Add a Python kernel that runs under zfold run.
    ///
    /// Jupyter then offers it like any other kernel, and can interrupt and restart it.
    #[command(after_help = EXAMPLES)]
    Install(InstallArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct InstallArgs {
    /// Most anonymous memory that a kernel and its descendants may have resident; compressed pages
    /// come on top.
    #[arg(long, value_name = "SIZE")]
    pub(crate) limit: Size,

    /// Codec, optionally with a level: page, lz4, lz4hc, zstd, lzo; page:deep, zstd:3.
    #[arg(long, default_value = "page", add = complete::codecs())]
    pub(crate) codec: CodecSpec,

    /// Python interpreter of the kernel, which needs ipykernel [default: python3 beside zfold,
    /// otherwise the one in PATH].
    #[arg(long, value_name = "PROGRAM", value_hint = ValueHint::ExecutablePath)]
    pub(crate) python: Option<PathBuf>,

    /// Name of the kernel, for commands: letters, digits, dots, dashes and underscores.
    #[arg(long, default_value = "zfold")]
    pub(crate) name: String,

    /// Name of the kernel, as notebooks show it [default: Python 3 (zfold, LIMIT)].
    #[arg(long, value_name = "TEXT")]
    pub(crate) display_name: Option<String>,

    /// Install the kernel below FOLDER/share/jupyter [default: for this user only].
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub(crate) prefix: Option<PathBuf>,
}
