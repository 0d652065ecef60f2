//! The arguments of `zfold lab`.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Command, FromArgMatches, Parser, Subcommand, ValueHint};
use zfold_compare::rng::Xorshift64;
use zfold_console::format::Format;
use zfold_console::program::find;
use zfold_lab::experiment::Settings;
use zfold_lab::{Experiment, build};

const EXAMPLES: &str = "\
Examples:
  A first look at everything, in a few minutes:
    zfold lab all --quick
  One experiment in full, with a page of plots beside the tables:
    zfold lab free --html free.html
  Half the size, more repeats:
    zfold lab pool-lock --scale 0.5 --repeats 15
  Machine-readable output:
    zfold lab scale --format json | jq '.records[] | [.variant, .workers, .value]'

Exit status: 0 done, 1 failed (no memory, wrong bytes), 2 wrong usage.";

/// What the columns of the tables mean.
const COLUMNS: &str = "\
Columns:
  variant    lock design, allocator or other contestant; sim: simulated, not measured
  workers    threads at work, requests in flight, or cores of the simulated machine
  median     of the repeats; as are mean, stddev (the standard deviation), min and max
  vs base    the median over that of the first variant with as many workers
  published  the document's figure, from another machine";

/// What the rows of lock statistics mean.
const LOCK_ROWS: &str = "
Rows of lock statistics, as in /proc/lock_stat, times in us:
  contentions   acquisitions that had to wait; con-bounces: after a holder on another CPU
  waittime      of those that had to wait: shortest, longest, sum, mean
  acquisitions  all of them; acq-bounces: after a holder on another CPU
  holdtime      from getting the lock to releasing it: shortest, longest, sum, mean";

/// Compare lock designs under load: repeat published experiments on this machine.
///
/// Each experiment repeats what one published document measured, as far as possible in user
/// space, and prints the published figures beside its own. Variants alternate in every repeat,
/// and every byte is compared.
#[derive(Debug, Parser)]
#[command(name = "zfold-lab", bin_name = "zfold lab", version, after_help = EXAMPLES)]
#[command(subcommand_required = true, max_term_width = 100)]
#[command(subcommand_value_name = "EXPERIMENT", subcommand_help_heading = "Experiments")]
#[command(arg_required_else_help = false)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    choice: Choice,

    /// Amount of work, relative to the default, 0.001 to 1000.
    #[arg(long, value_name = "SHARE", default_value_t = 1.0, value_parser = parse_scale)]
    #[arg(allow_negative_numbers = true, global = true, help_heading = "How to measure")]
    scale: f64,

    /// Number of repeats of every variant, 1 to 1000.
    #[arg(long, value_name = "TIMES", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    #[arg(global = true, help_heading = "How to measure")]
    repeats: u32,

    /// Finish each experiment in less than 20 s (build: a minute), at the expense of precision.
    #[arg(long, global = true, help_heading = "How to measure")]
    quick: bool,

    /// Seed of all random choices: the same seed, the same work.
    #[arg(long, value_name = "NUMBER", default_value_t = Xorshift64::SEED)]
    #[arg(global = true, help_heading = "How to measure")]
    seed: u64,

    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    #[arg(global = true, help_heading = "Output")]
    pub(crate) format: Format,

    /// Write the results to FILE instead of standard output.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[arg(global = true, help_heading = "Output")]
    pub(crate) output: Option<PathBuf>,

    /// Also write a page with plots and tables to FILE; it needs no network.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[arg(global = true, help_heading = "Output")]
    pub(crate) html: Option<PathBuf>,
}

impl LabArgs {
    /// Returns the experiments to run.
    pub(crate) fn experiments(&self) -> &[Experiment] {
        &self.choice.experiments
    }

    /// Returns the input of the experiments.
    pub(crate) fn settings(&self) -> Settings {
        let Self { scale, repeats, quick, seed, .. } = *self;
        let (lab, zfold) = (std::env::current_exe().ok(), find("zfold"));
        let project = self.choice.project.clone();
        Settings { scale, repeats, quick, seed, lab, zfold, project }
    }
}

/// Which experiments to run, and the input of only some of them.
#[derive(Clone, Debug)]
struct Choice {
    experiments: Vec<Experiment>,
    project: Option<PathBuf>,
}

const ALL: &str = "all";
const PROJECT: &str = "project";

impl Subcommand for Choice {
    fn augment_subcommands(command: Command) -> Command {
        let all = Command::new(ALL).about("All of the above, one after the other");
        let all = all.after_help(after_help(true, "all --quick"));
        command.subcommands(Experiment::ALL.iter().map(subcommand)).subcommand(all)
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        name == ALL || Experiment::ALL.iter().any(|experiment| experiment.name == name)
    }
}

impl FromArgMatches for Choice {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let none = || clap::Error::new(ErrorKind::MissingSubcommand);
        let (name, matches) = matches.subcommand().ok_or_else(none)?;
        let all = Experiment::ALL.into_iter();
        let experiments = all.filter(|one| [one.name, ALL].contains(&name)).collect();
        let project = matches.try_get_one(PROJECT).ok().flatten().cloned();
        Ok(Self { experiments, project })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Returns the command of an experiment, with the options that only it has.
fn subcommand(experiment: &Experiment) -> Command {
    let (name, question) = (experiment.name, experiment.question);
    let command = Command::new(name)
        .about(question)
        .long_about(format!("{question}\n\n{}", experiment.story))
        .after_help(after_help(experiment.counts_locks, &format!("{name} {}", experiment.example)));
    match name {
        build::NAME => command.arg(project()),
        _ => command,
    }
}

/// Returns the option that names a project to build.
fn project() -> Arg {
    let option = Arg::new(PROJECT).long(PROJECT).value_name("DIR").value_hint(ValueHint::DirPath);
    option.value_parser(clap::value_parser!(PathBuf)).help(
        "Build a copy of DIR, by make without a target, instead of a generated project of C \
         files. It must build without network, and without asking",
    )
}

/// Returns what stands behind the options of an experiment.
fn after_help(counts_locks: bool, example: &str) -> String {
    let locks = if counts_locks { format!("\n{LOCK_ROWS}") } else { String::new() };
    format!("{COLUMNS}{locks}\n\nExample: zfold lab {example}")
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
        let Settings { scale, repeats, quick, seed, lab, zfold, project } = args.settings();
        assert_eq!((scale, repeats, quick, seed), (1.0, 5, false, Xorshift64::SEED));
        assert_eq!((lab, zfold), (std::env::current_exe().ok(), find("zfold")));
        assert_eq!(project, None);
        assert_eq!((args.format, args.output, args.html), (Format::Table, None, None));
    }

    #[test]
    fn options_stand_before_or_after_the_experiment() {
        for line in [["--quick", "--seed=7", "free"], ["free", "--seed=7", "--quick"]] {
            let settings = lab(&line).expect("valid").settings();
            assert_eq!((settings.quick, settings.seed), (true, 7));
        }
    }
}
