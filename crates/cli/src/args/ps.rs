//! The arguments of `zfold ps`.

pub(super) const EXAMPLES: &str = "\
Examples:
  Runs and disks of this user:
    zfold ps
  Machine-readable output:
    zfold ps --json | jq '.runs[] | [.pid, .resident_bytes]'

Exit status: 0 done, 1 failed, 2 wrong usage.";

#[derive(Debug, clap::Args)]
pub(crate) struct PsArgs {
    /// Print JSON, schema zfold.ps/1; fields in bytes end in _bytes.
    #[arg(long)]
    pub(crate) json: bool,
}
