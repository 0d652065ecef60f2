//! The arguments of `zfold check`.

pub(super) const EXAMPLES: &str = "\
Examples:
  What works here, and what to do about the rest:
    zfold check
  In a script:
    zfold check >/dev/null && zfold run --limit 1GiB -- ./batch
  What is missing, for a program:
    zfold check --json | jq '.needs[] | select(.found | not) | [.name, .remedies[0]]'

Exit status: 0 if zfold run works here, 1 if not, 2 wrong usage.";

#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// Write a document, schema zfold.check/1.
    #[arg(long)]
    pub(crate) json: bool,
}
