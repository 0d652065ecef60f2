//! The arguments of `zfold lab`.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Parser, ValueEnum, ValueHint};
use zfold_compare::rng::Xorshift64;
use zfold_console::program::find;
use zfold_lab::Experiment;
use zfold_lab::experiment::Settings;

const EXAMPLES: &str = "\
Columns:
  variant    lock design, allocator or other contestant; sim: simulated, not measured
  workers    threads or processes at work, or cores of the simulated machine
  median     of the repeats; as are min and max
  vs base    the median over that of the first variant with as many workers
  published  the document's figure, from another machine

Examples:
  A first look at everything, in a few minutes:
    zfold lab all --quick
  One experiment in full, with a page of charts beside the tables:
    zfold lab free --html free.html
  Half the size, more repeats:
    zfold lab pool-lock --scale 0.5 --repeats 15
  Machine-readable output:
    zfold lab lockstat --format json | jq '.records[] | [.variant, .workers, .value]'

Exit status: 0 done, 1 failed (no memory, wrong bytes), 2 wrong usage.";

/// Compare lock designs under load: repeat published experiments on this machine.
///
/// Each experiment repeats what one published document measured, as far as possible in user
/// space, and prints the published figures beside its own. Variants alternate in every repeat,
/// and every byte is compared.
#[derive(Debug, Parser)]
#[command(name = "zfold-lab", bin_name = "zfold lab", version, after_help = EXAMPLES)]
#[command(max_term_width = 100)]
pub(crate) struct LabArgs {
    /// The question to answer.
    #[arg(value_parser = PossibleValuesParser::new(names()))]
    experiment: String,

    /// Amount of work, relative to the default, 0.001 to 1000.
    #[arg(long, value_name = "SHARE", default_value_t = 1.0, value_parser = parse_scale)]
    #[arg(allow_negative_numbers = true, help_heading = "How to measure")]
    scale: f64,

    /// Number of repeats of every variant, 1 to 1000.
    #[arg(long, value_name = "TIMES", default_value_t = 5, help_heading = "How to measure")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,

    /// Finish each experiment in less than 20 s (build: a minute), at the expense of precision.
    #[arg(long, help_heading = "How to measure")]
    quick: bool,

    /// Seed of all random choices: the same seed, the same work.
    #[arg(long, value_name = "NUMBER", default_value_t = Xorshift64::SEED)]
    #[arg(help_heading = "How to measure")]
    seed: u64,

    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Table, help_heading = "Output")]
    pub(crate) format: Format,

    /// Write the results to FILE instead of standard output.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub(crate) output: Option<PathBuf>,

    /// Also write a page with charts and tables to FILE; it needs no network.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub(crate) html: Option<PathBuf>,
}

/// How results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Tables for people.
    Table,
    /// One document, schema zfold.lab/1.
    Json,
}

const ALL: &str = "all";

/// Returns the names of all experiments with their questions.
fn names() -> Vec<PossibleValue> {
    let named = |one: Experiment| PossibleValue::new(one.name).help(one.question);
    let all = PossibleValue::new(ALL).help("All of the above, one after the other");
    Experiment::ALL.into_iter().map(named).chain([all]).collect()
}

impl LabArgs {
    /// Returns the experiments to run.
    pub(crate) fn experiments(&self) -> Vec<Experiment> {
        let all = Experiment::ALL.into_iter();
        all.filter(|one| [one.name, ALL].contains(&&*self.experiment)).collect()
    }

    /// Returns the input of the experiments.
    pub(crate) fn settings(&self) -> Settings {
        let Self { scale, repeats, quick, seed, .. } = *self;
        let (lab, zfold) = (std::env::current_exe().ok(), find("zfold"));
        Settings { scale, repeats, quick, seed, lab, zfold }
    }
}

/// Returns the share that `text` means.
fn parse_scale(text: &str) -> Result<f64, String> {
    let scale = text.parse().ok().filter(|scale| (0.001..=1000.0).contains(scale));
    scale.ok_or_else(|| "a share is a number from 0.001 to 1000, such as 0.5".to_owned())
}

#[cfg(test)]
mod tests {

    use super::*;

    fn lab(arguments: &[&str]) -> Result<LabArgs, clap::Error> {
        LabArgs::try_parse_from(["zfold-lab"].iter().chain(arguments))
    }

    #[test]
    fn nothing_typed_is_the_default() {
        let args = lab(&["free"]).expect("valid");
        let Settings { scale, repeats, quick, seed, lab, zfold } = args.settings();
        assert_eq!((scale, repeats, quick, seed), (1.0, 5, false, Xorshift64::SEED));
        assert_eq!((lab, zfold), (std::env::current_exe().ok(), find("zfold")));
        assert_eq!((args.format, &args.output, &args.html), (Format::Table, &None, &None));
        let named = |args: LabArgs| args.experiments().iter().map(|one| one.name).collect();
        assert_eq!(named(args), vec!["free"]);
        let all: Vec<&str> = named(super::tests::lab(&["--quick", "all"]).expect("valid"));
        assert_eq!(all.len(), Experiment::ALL.len());
        assert!(!all.contains(&ALL) && !all.contains(&"process"), "other commands");
    }
}
