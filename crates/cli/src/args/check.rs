//! The arguments of `zfold check`.

pub(super) const EXAMPLES: &str = "\
Examples:
  What works, and what grants the rest:
    zfold check
  In a script:
    zfold check >/dev/null && zfold run --limit 1GiB -- ./batch
  Machine-readable output, what is missing:
    zfold check --json | jq '.needs[] | select(.found | not) | [.name, .remedies[0]]'

Exit status: 0 if zfold run works, 1 if not, 2 wrong usage.";

#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// Print JSON, schema zfold.check/1.
    #[arg(long)]
    pub(crate) json: bool,
}
