//! The arguments of `zfold top`.

pub(super) const EXAMPLES: &str = "\
Examples:
  A live view; ? shows the keys:
    zfold top
  One table, for a log:
    zfold top --once
  One object per line, every ten seconds:
    zfold top --json --interval 10 | jq -c '.runs[] | [.pid, .resident_bytes, .faults_per_second]'

Exit status: 0 done, 1 failed, 2 wrong usage.";

#[derive(Debug, clap::Args)]
pub(crate) struct TopArgs {
    /// Refresh every SECONDS, 1 to 86400.
    #[arg(long, value_name = "SECONDS", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) interval: u32,

    /// Print one table after one interval, and end.
    #[arg(long)]
    pub(crate) once: bool,

    /// Print JSON, schema zfold.top/1, one document per line; with --once, a single one.
    #[arg(long)]
    pub(crate) json: bool,
}
