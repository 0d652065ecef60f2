//! The arguments of `zfold top`.

pub(super) const EXAMPLES: &str = "\
Examples:
  A live view; the last line shows the keys:
    zfold top
  One table, for a log:
    zfold top --once
  One object per line, every ten seconds:
    zfold top --json --interval 10 | jq -c '.runs[] | [.pid, .resident_bytes, .faults_per_second]'

RES counts against the limit. STORED are the pages that lie compressed, at their full size, and
RATIO is that over the memory they take. FAULT/S are page faults, of which P50 and P99 took at most
so long; REFLT/S pages loaded again before they were compressed; EVICT/S pages that left a process,
or the memory of a disk for its backing file; REQ/S requests of a disk. TOUCHED is the memory used
in the last minute, STAYS what cannot be evicted.

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
