//! The arguments of `zfold ps`.

pub(super) const EXAMPLES: &str = "\
Examples:
  Runs and disks of this user:
    zfold ps
  For a program:
    zfold ps --json | jq '.runs[] | [.pid, .resident_bytes]'

Exit status: 0 done, 1 failed, 2 wrong usage.";

#[derive(Debug, clap::Args)]
pub(crate) struct PsArgs {
    /// Write a document, schema zfold.ps/1; bytes in _bytes.
    #[arg(long)]
    pub(crate) json: bool,
}
