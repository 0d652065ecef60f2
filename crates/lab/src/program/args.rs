//! The arguments of `zfold lab`.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueHint};
use zfold_compare::rng::Xorshift64;
use zfold_console::format::Format;
use zfold_console::program::find;
use zfold_lab::Experiment;
use zfold_lab::experiment::Settings;

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
macro_rules! columns {
    () => {
        "\
Columns:
  variant    lock design, allocator or other contestant; sim: simulated, not measured
  workers    threads at work, requests in flight, or cores of the simulated machine
  median     of the repeats; as are mean, stddev (the standard deviation), min and max
  vs base    the median over that of the first variant with as many workers
  published  the document's figure, from another machine"
    };
}

/// What the rows of lock statistics mean.
macro_rules! lock_rows {
    () => {
        "
Rows of lock statistics, as in /proc/lock_stat, times in us:
  contentions   acquisitions that had to wait; con-bounces: after a holder on another CPU
  waittime      of those that had to wait: shortest, longest, sum, mean
  acquisitions  all of them; acq-bounces: after a holder on another CPU
  holdtime      from getting the lock to releasing it: shortest, longest, sum, mean"
    };
}

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

    /// Finish each experiment in less than 20 s (disk, build: a minute), at the expense of
    /// precision.
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
    pub(crate) fn experiments(&self) -> Vec<Experiment> {
        match &self.choice {
            Choice::PoolLock => vec![Experiment::PoolLock],
            Choice::PerCpuLists => vec![Experiment::PerCpuLists],
            Choice::Compaction => vec![Experiment::Compaction],
            Choice::Free => vec![Experiment::Free],
            Choice::Allocators => vec![Experiment::Allocators],
            Choice::Writeback => vec![Experiment::Writeback],
            Choice::LockStat => vec![Experiment::LockStat],
            Choice::Scale => vec![Experiment::Scale],
            Choice::Density { .. } => vec![Experiment::Density],
            Choice::Disk => vec![Experiment::Disk],
            Choice::Pageout => vec![Experiment::Pageout],
            Choice::Calls => vec![Experiment::Calls],
            Choice::Build { .. } => vec![Experiment::Build],
            Choice::Limits => vec![Experiment::Limits],
            Choice::All => Experiment::ALL.to_vec(),
        }
    }

    /// Returns what the experiments are told.
    pub(crate) fn settings(&self) -> Settings {
        let Self { scale, repeats, quick, seed, .. } = *self;
        let (lab, zfold) = (std::env::current_exe().ok(), find("zfold"));
        let project = match &self.choice {
            Choice::Build { project } => project.clone(),
            _ => None,
        };
        let pages = match &self.choice {
            Choice::Density { pages } => pages.clone(),
            _ => Vec::new(),
        };
        Settings { scale, repeats, quick, seed, lab, zfold, project, pages }
    }
}

/// Which experiment to run.
#[derive(Debug, Subcommand)]
enum Choice {
    #[command(name = Experiment::PoolLock.name(), about = Experiment::PoolLock.summary())]
    #[command(after_help = concat!(columns!(), "\n\nExample: zfold lab pool-lock --quick"))]
    #[command(long_about = "\
What does one lock for all of zsmalloc cost?

Linux 6.2 replaced the migration lock and the locks of the size classes by one lock for the pool; \
writing files and building a kernel on zram took as long as before, within the noise. Shows \
whether that also holds on this machine, and whether it holds under the other lock designs.")]
    PoolLock,

    #[command(name = Experiment::PerCpuLists.name(), about = Experiment::PerCpuLists.summary())]
    #[command(after_help = concat!(columns!(), "\n\nExample: zfold lab per-cpu-lists --quick"))]
    #[command(long_about = "\
What does z3fold gain from per-CPU lists, and what density do they cost?

Linux 4.14 gave each CPU its own lists of pages with room; with 8 cores reads and writes became \
almost six times as fast, at a slightly lower density (2.57 instead of 2.65). Measures both \
on this machine.")]
    PerCpuLists,

    #[command(name = Experiment::Compaction.name(), about = Experiment::Compaction.summary())]
    #[command(after_help =
        concat!(columns!(), "\n", lock_rows!(), "\n\nExample: zfold lab compaction --quick"))]
    #[command(long_about = "\
What is gained if only one thread compacts at a time?

Linux 6.4 turns away all but the first caller of compaction: threads that compact the same classes \
contend for the lock that everybody else needs. Measures how much contention that saves, how \
much sooner the work is done, and what dealing the classes to all CPUs adds.")]
    Compaction,

    #[command(name = Experiment::Free.name(), about = Experiment::Free.summary())]
    #[command(after_help = concat!(columns!(), "\n\nExample: zfold lab free --html free.html"))]
    #[command(long_about = "\
How much faster is zs_free without the pool's lock?

With the size class in the handle's cell, zs_free needs no lock of the pool, and returns pages \
after it has released the class's lock. The published times are of processes that unmap 256 MiB \
of compressed memory each, at the same time. Measures what that gains here, by the number of \
workers.")]
    Free,

    #[command(name = Experiment::Allocators.name(), about = Experiment::Allocators.summary())]
    #[command(after_help = concat!(columns!(), "\n\nExample: zfold lab allocators --repeats 9"))]
    #[command(long_about = "\
Which of zbud, z3fold and zsmalloc is fastest, which smallest?

The published comparison of the three under zswap led to the removal of zbud and z3fold from \
Linux: all are about as fast, and zbud takes a third more memory. Measures times, latencies of \
stores and loads, and the largest pool, under one load.")]
    Allocators,

    #[command(name = Experiment::Writeback.name(), about = Experiment::Writeback.summary())]
    #[command(after_help = concat!(columns!(), "\n\nExample: zfold lab writeback --repeats 1"))]
    #[command(long_about = "\
Who should choose what leaves a full pool, the pool or its owner?

Up to Linux 6.4 zswap had its pool empty the page that was written longest ago; since 6.5 it \
writes out the entry that was used longest ago, whatever that frees. Replays the same load both \
ways in each allocator. Shows how many pages are written to the swap device, and how many of them \
are soon read again.")]
    Writeback,

    #[command(name = Experiment::LockStat.name(), about = Experiment::LockStat.summary())]
    #[command(after_help =
        concat!(columns!(), "\n", lock_rows!(), "\n\nExample: zfold lab lockstat --repeats 1"))]
    #[command(long_about = "\
Which locks are contended, and how long do threads wait for them?

Runs one load under every lock design with its locks watched. Shows where the time goes: in \
waiting, in holding, or in cache lines of the locks that bounce between CPUs.")]
    LockStat,

    #[command(name = Experiment::Scale.name(), about = Experiment::Scale.summary())]
    #[command(after_help = concat!(columns!(), "\n\nExample: zfold lab scale --html scale.html"))]
    #[command(long_about = "\
How far does each lock design scale with the cores?

Measures what operations and locks cost on this machine, and simulates machines with more cores \
from that. Shows where each design's throughput stops growing; not how fast a machine of so many \
cores would really be.")]
    Scale,

    #[command(name = Experiment::Density.name(), about = Experiment::Density.summary())]
    #[command(after_help =
        concat!(columns!(), "\n\nExample: zfold lab density --scale 4 --html density.html"))]
    #[command(long_about = "\
What do the same pages take in the kernel's zram and in stores?

Stores real pages in a zram device and in stores of zsmalloc and fit by lz4, page, page:deep and \
zstd; frees a random half, compacts, and replaces each page many times. Shows at each of these \
moments what is held, all included, for a page and over the compressed bytes, and how long single \
stores and loads take. zram needs root; what is missing is left out and named. The device is gone \
afterwards, also after Ctrl-C.")]
    Density {
        /// Captures to store instead of the built-in ones: files of raw pages, compressed by zstd
        /// if named *.zst.
        #[arg(long, value_name = "FILE", num_args = 1.., value_hint = ValueHint::FilePath)]
        pages: Vec<PathBuf>,
    },

    #[command(name = Experiment::Disk.name(), about = Experiment::Disk.summary())]
    #[command(after_help = concat!(columns!(), "\n\nExample: zfold lab disk --repeats 3"))]
    #[command(long_about = "\
Which block device of compressed memory serves fastest and holds least?

Loads zfold disk, nbdkit's memory plugin and QEMU's storage daemon with fio, over NBD and through \
a loop device on a FUSE file; measures the memory that they and the kernel's zram hold; and runs \
the library against zram. Shows which serves most requests, and which holds least when everything \
has been overwritten. What is not installed, or needs root, is left out and named.")]
    Disk,

    #[command(name = Experiment::Pageout.name(), about = Experiment::Pageout.summary())]
    #[command(after_help = concat!(columns!(), "\n\nExample: zfold lab pageout --quick"))]
    #[command(long_about = "\
What does it cost to page memory out, fault it in and unmap it?

Processes map 256 MiB each, write real pages, have them paged out, read a random quarter of them \
and unmap all at the same time: by the kernel's swap to zram, with zfold's regions, and under \
zfold run. Another process accesses random pages of memory of which half may be resident. Shows \
what it costs each of them to page out, fault in and unmap a page. Swap needs root; \
what cannot be set up is left out and named. Swap and devices are gone afterwards, also after \
Ctrl-C.")]
    Pageout,

    #[command(name = Experiment::Calls.name(), about = Experiment::Calls.summary())]
    #[command(after_help = concat!(columns!(), "\n\nExample: zfold lab calls --repeats 9"))]
    #[command(long_about = "\
What do calls that change an address space cost under zfold run?

One process calls brk, mmap with munmap, and madvise(MADV_DONTNEED), for 64 KiB each, on untouched \
and on full memory, and starts programs: alone, under a limit that is \
not reached, and under one that is. Shows what a program pays that is never short of memory, and \
what a call costs where memory has left.")]
    Calls,

    #[command(name = Experiment::Build.name(), about = Experiment::Build.summary())]
    #[command(after_help =
        concat!(columns!(), "\n\nExample: zfold lab build --project src/linux --repeats 3"))]
    #[command(long_about = "\
How long does a build with limited memory take?

Builds a C project by make under zfold run with each allocator, under the kernel's zram and zswap \
in a memory cgroup, and without a limit; limits are shares of the memory that it takes without \
one. Shows what the limit costs in time, and what the compressed pages take. Object files must \
be the same each time. Needs make and a C compiler, and the kernel's swap root; what is missing \
is left out and named.")]
    Build {
        /// Build a copy of DIR, by make without a target, instead of a generated project of C
        /// files. It must build without network, and without asking.
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        project: Option<PathBuf>,
    },

    #[command(name = Experiment::Limits.name(), about = Experiment::Limits.summary())]
    #[command(after_help = concat!(columns!(), "\n\nExample: zfold lab limits --repeats 2"))]
    #[command(long_about = "\
How low can a limit be before a program mostly waits for its pages?

Runs a hash table, a sort, a compiler and passes over an array alone, and under zfold run with \
limits from 75 to 30 percent of the memory that they have alone. Shows how much longer each takes, \
and where it is not done after a minute. What they print must be the same each time. Needs perl, \
gcc and Python with NumPy; what is missing is left out and named.")]
    Limits,

    /// All of the above, one after the other.
    #[command(after_help =
        concat!(columns!(), "\n", lock_rows!(), "\n\nExample: zfold lab all --quick"))]
    All,
}

/// Returns the share that `text` means.
fn parse_scale(text: &str) -> Result<f64, String> {
    let scale = text.parse().ok().filter(|scale| (0.001..=1000.0).contains(scale));
    scale.ok_or_else(|| "a share is a number from 0.001 to 1000, such as 0.5".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn lab(arguments: &[&str]) -> Result<LabArgs, clap::Error> {
        LabArgs::try_parse_from(["zfold-lab"].iter().chain(arguments))
    }

    #[test]
    fn definition_is_consistent() {
        LabArgs::command().debug_assert();
    }

    #[test]
    fn every_experiment_has_its_subcommand() {
        for experiment in Experiment::ALL {
            let args = lab(&[experiment.name()]).expect("valid");
            assert_eq!(args.experiments(), [experiment]);
        }
        assert_eq!(lab(&["all"]).expect("valid").experiments(), Experiment::ALL);
        assert!(lab(&[]).is_err() && lab(&["none"]).is_err());
    }

    #[test]
    fn nothing_typed_is_the_default() {
        let args = lab(&["free"]).expect("valid");
        let Settings { scale, repeats, quick, seed, lab, zfold, project, pages } = args.settings();
        assert_eq!((scale, repeats, quick, seed), (1.0, 5, false, Xorshift64::SEED));
        assert_eq!((lab, zfold), (std::env::current_exe().ok(), find("zfold")));
        assert_eq!(project, None);
        assert!(pages.is_empty());
        assert_eq!((args.format, args.output, args.html), (Format::Table, None, None));
    }

    #[test]
    fn options_stand_before_or_after_the_experiment() {
        for line in [["--quick", "--seed=7", "free"], ["free", "--seed=7", "--quick"]] {
            let settings = lab(&line).expect("valid").settings();
            assert_eq!((settings.quick, settings.seed), (true, 7));
        }
    }

    #[test]
    fn a_project_is_given_to_build_only() {
        let args = lab(&["build", "--project", "src"]).expect("valid");
        assert_eq!(args.settings().project, Some(PathBuf::from("src")));
        assert!(lab(&["free", "--project", "src"]).is_err());
    }

    #[test]
    fn captures_are_given_to_density_only() {
        let args = lab(&["density", "--pages", "one", "two.zst", "--quick"]).expect("valid");
        assert_eq!(args.settings().pages, ["one", "two.zst"].map(PathBuf::from));
        assert!(lab(&["free", "--pages", "one"]).is_err());
    }

    #[test]
    fn scales_are_positive_and_finite() {
        assert_eq!(parse_scale("0.5"), Ok(0.5));
        for wrong in ["0", "-1", "NaN", "inf", "1e9", "half", "", "1e-9"] {
            assert!(parse_scale(wrong).is_err(), "{wrong}");
        }
    }
}
