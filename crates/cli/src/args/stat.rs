//! The arguments of `zfold stat`.

use super::ctl::Target;
use super::values::Format;

pub(super) const EXAMPLES: &str = "\
Examples:
  Statistics of this user's only server:
    zfold stat
  Every two seconds:
    zfold stat --watch 2
  Of a run, by its number (zfold ps):
    zfold stat --pid 4711
  Machine-readable output:
    zfold stat --format json | jq '.disks[0].mm_stat'

Exit status: 0 done, 1 failed, 2 wrong usage.";

#[derive(Debug, clap::Args)]
pub(crate) struct StatArgs {
    #[command(flatten)]
    pub(crate) target: Target,

    /// Repeat every SECONDS, 1 to 86400, until interrupted.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) watch: Option<u32>,

    /// Output format; json has bytes and pages, schema zfold.stat/1, one document per
    /// line.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}
