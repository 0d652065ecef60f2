//! What was typed: every flag with its help, unit, default and range. No side effects.

mod ctl;
mod disk;
mod lab;
mod run;
mod stat;

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use zfold_lab::compare::{Allocator, Chooser, CodecSpec, Locking, PageSize, Preset};
use zfold_lab::rng::Xorshift64;

use crate::size::parse_size;
pub(crate) use ctl::{CtlArgs, CtlCommand, Target};
pub(crate) use disk::{DeviceSettings, DiskArgs, ServerSettings};
pub(crate) use lab::LabArgs;
pub(crate) use run::{ReportFormat, RunArgs};
pub(crate) use stat::{StatArgs, StatFormat};

/// Compressed memory in user space: for programs, as disks, and to compare its pools.
#[derive(Debug, Parser)]
#[command(name = "zfold", version, disable_help_subcommand = true)]
#[command(subcommand_required = true, arg_required_else_help = false, max_term_width = 100)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a program in less memory than it wants, and keep the rest compressed.
    ///
    /// At most --limit of the anonymous memory of the program and its descendants stays resident. A
    /// manager process compresses the other pages and brings them back when they are touched. The
    /// program does not notice, whatever its language or libc; static programs work, too.
    #[command(after_help = run::EXAMPLES)]
    Run(Box<RunArgs>),
    /// The manager of a run, which zfold run starts.
    #[command(hide = true)]
    Manage(Box<RunArgs>),
    /// Serve a block device in compressed memory: over NBD, as a file, to virtual machines.
    ///
    /// What clients write is compressed and kept in this process's memory, and freed again by
    /// discards. It lasts as long as the process; --save and --load make it last longer.
    #[command(after_help = disk::EXAMPLES)]
    Disk(Box<DiskArgs>),
    /// Show the statistics of a running zfold disk, in the terms of zram and zswap.
    #[command(after_help = stat::EXAMPLES)]
    Stat(StatArgs),
    /// Change settings of a running zfold disk; have it write back, compact, recompress or save.
    #[command(after_help = ctl::EXAMPLES)]
    Ctl(CtlArgs),
    /// Compare zbud, z3fold and zsmalloc on real pages: how much memory, how fast.
    ///
    /// Every page is stored in a random order and loaded again, a random half is freed, the pool
    /// is compacted, the half is stored again, all is loaded again and freed. Every byte is
    /// compared. The tables tell the memory and the time each allocator and codec took, and the
    /// last line what the best choice would save.
    ///
    /// Several inputs are also stored in one pool together, as the input "all"; the times in the
    /// table and the last line are those of "all", json and csv have every input's.
    ///
    /// Without an input, five captures of real programs (cc1, node, numpy, postgres, rustc) that
    /// are part of this program are compared.
    #[command(after_help = EXAMPLES)]
    Compare(Box<CompareArgs>),
    /// Compare lock designs under load: repeat published experiments on this machine.
    ///
    /// Each experiment repeats what one published document did, as far as that goes in user
    /// space, and puts the published figures beside. Base and variants alternate in every repeat,
    /// and every byte is compared.
    #[command(after_help = lab::EXAMPLES)]
    Lab(LabArgs),
    /// Write a script that completes zfold's arguments in a shell.
    #[command(after_help = "Example:\n  zfold completions bash >> ~/.bash_completion")]
    Completions {
        /// The shell.
        shell: Shell,
    },
}

const EXAMPLES: &str = "\
Examples:
  Compare on the built-in captures:
    zfold compare
  What would compressing the memory of process 4711 save?
    sudo zfold compare --pid 4711
  The same question for a file, with stronger codecs:
    zfold compare --file data.bin --codecs lz4hc,zstd:9
  How the tails behave with two threads on a pool of at most 64 MiB:
    zfold compare --file data.bin --threads 2 --limit 64MiB --histogram
  Pool sizes as a Linux 6.1 kernel has them:
    zfold compare --preset linux-6.1 --codecs lz4
  Replay the sizes of a recorded zswap run:
    zfold compare --trace run.ztr.zst --preset linux-6.1
  For a program:
    zfold compare --format json | jq '.records[] | [.input, .allocator, .pool_bytes]'

Exit status: 0 done, 1 failed (bad input, wrong bytes), 2 wrong usage.";

#[derive(Debug, clap::Args)]
pub(crate) struct CompareArgs {
    /// Captures: files of raw pages, or packed by zstd when named *.zst.
    #[arg(long, value_name = "FILE", num_args = 1.., value_hint = ValueHint::FilePath)]
    #[arg(help_heading = "Input")]
    pub(crate) pages: Vec<PathBuf>,

    /// Any files, cut in pages; the last page is filled up with zeros.
    #[arg(long, value_name = "FILE", num_args = 1.., value_hint = ValueHint::FilePath)]
    #[arg(help_heading = "Input")]
    pub(crate) file: Vec<PathBuf>,

    /// A live process: its anonymous memory, without stacks. Needs the right to ptrace it.
    #[arg(long, help_heading = "Input")]
    pub(crate) pid: Option<u32>,

    /// Replay the order and the sizes of a zswap trace, raw or packed by zstd. Measures the
    /// allocators alone: object contents are made up, there is no codec.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Input")]
    #[arg(conflicts_with_all = ["pages", "file", "pid", "codecs", "threads", "limit"])]
    pub(crate) trace: Option<PathBuf>,

    /// Take at most SIZE of each --pid and --file, as a uniform random sample of pages.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_size)]
    #[arg(help_heading = "Input")]
    pub(crate) sample: u64,

    /// Allocators to compare [default: all].
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "What to compare")]
    #[arg(value_parser = allocators())]
    pub(crate) allocators: Vec<Allocator>,

    /// Codecs to compare, with a level if you like: lz4, lz4hc, page, zstd, deflate, lzo; zstd:9
    /// [default: lz4,zstd].
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "What to compare")]
    pub(crate) codecs: Vec<CodecSpec>,

    /// Imitate a kernel: linux-6.1 has chains of 4 pages, the old chooser, drops pages that do
    /// not compress, and puts 8 bytes before objects in zbud and z3fold; linux-6.18 has chains
    /// of 8 pages, the new chooser, and keeps pages that do not compress. Other options override.
    #[arg(long, value_name = "KERNEL", help_heading = "What to compare")]
    #[arg(value_parser = presets())]
    pub(crate) preset: Option<Preset>,

    /// Most pages that zsmalloc chains to one zspage, 4 to 16 [default: 8].
    #[arg(long, value_name = "PAGES", help_heading = "What to compare")]
    #[arg(value_parser = clap::value_parser!(u32).range(4..=16))]
    pub(crate) chain: Option<u32>,

    /// How zsmalloc chooses the pages of a zspage: old (used per cent) or new (least waste)
    /// [default: new].
    #[arg(long, help_heading = "What to compare", value_parser = choosers())]
    pub(crate) chooser: Option<Chooser>,

    /// Which locks guard a pool, for allocators that have this design [default: the best that an
    /// allocator has; with --preset pool-lock].
    #[arg(long, value_name = "DESIGN", help_heading = "What to compare", value_parser = lockings())]
    pub(crate) locking: Option<Locking>,

    /// Size of a page [default: 4KiB].
    #[arg(long, value_name = "SIZE", help_heading = "What to compare")]
    #[arg(value_parser = page_sizes())]
    pub(crate) page_size: Option<PageSize>,

    /// Most memory to take for pool, tables and codec together, such as 64MiB; pages beyond are
    /// rejected [default: none].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    #[arg(help_heading = "What to compare")]
    pub(crate) limit: Option<u64>,

    /// Threads that store and load, each its share of the pages, 1 to 256 [default: 1].
    #[arg(long, help_heading = "How to measure")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) threads: Option<u32>,

    /// Do everything this often, 1 to 1000; times are of all runs, sizes medians.
    #[arg(long, value_name = "TIMES", default_value_t = 1, help_heading = "How to measure")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeat: u32,

    /// Names the random orders and samples: the same seed, the same run. The default names the
    /// order in which a real kernel's pool sizes were taken.
    #[arg(long, value_name = "NUMBER", default_value_t = Xorshift64::SEED)]
    #[arg(help_heading = "How to measure")]
    pub(crate) seed: u64,

    /// How to write the results; sizes are bytes and times nanoseconds in json and csv.
    #[arg(long, value_enum, default_value_t = Format::Table, help_heading = "Output")]
    pub(crate) format: Format,

    /// Draw the store and load times by powers of two, above the tables.
    #[arg(long, help_heading = "Output")]
    pub(crate) histogram: bool,
}

/// How results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Tables for people.
    Table,
    /// One document, schema zfold.compare/1 or zfold.lab/1.
    Json,
    /// A line of names, then a line per record.
    Csv,
}

fn allocators() -> impl TypedValueParser<Value = Allocator> {
    choice(Allocator::ALL.map(|allocator| (PossibleValue::new(allocator.name()), allocator)))
}

fn choosers() -> impl TypedValueParser<Value = Chooser> {
    choice(Chooser::ALL.map(|chooser| (PossibleValue::new(chooser.name()), chooser)))
}

fn lockings() -> impl TypedValueParser<Value = Locking> {
    choice(Locking::ALL.map(|design| (PossibleValue::new(design.name()), design)))
}

fn presets() -> impl TypedValueParser<Value = Preset> {
    choice(Preset::ALL.map(|preset| (PossibleValue::new(preset.name()), preset)))
}

fn page_sizes() -> impl TypedValueParser<Value = PageSize> {
    choice([
        (PossibleValue::new("4KiB").alias("4096"), PageSize::KIB4),
        (PossibleValue::new("16KiB").alias("16384"), PageSize::KIB16),
        (PossibleValue::new("64KiB").alias("65536"), PageSize::KIB64),
    ])
}

/// Returns a parser of named values, which lists the names in help, errors and completions.
fn choice<T, const N: usize>(values: [(PossibleValue, T); N]) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + 'static,
{
    let names = values.clone().map(|(name, _)| name);
    PossibleValuesParser::new(names).map(move |typed| {
        let found = values.iter().find(|(name, _)| name.matches(&typed, false));
        found.expect("the parser lets only these names pass").1
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn compare(arguments: &[&str]) -> Result<CompareArgs, clap::Error> {
        let line = ["zfold", "compare"].iter().chain(arguments);
        match Args::try_parse_from(line)?.command {
            Command::Compare(args) => Ok(*args),
            other => panic!("not a comparison: {other:?}"),
        }
    }

    #[test]
    fn definition_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn nothing_typed_is_the_default() {
        let args = compare(&[]).expect("valid");
        assert!(args.pages.is_empty() && args.allocators.is_empty() && args.codecs.is_empty());
        assert_eq!((args.sample, args.repeat, args.seed), (256 << 20, 1, Xorshift64::SEED));
        assert_eq!((args.format, args.histogram), (Format::Table, false));
        assert_eq!((args.chain, args.threads, args.limit), (None, None, None));
    }

    #[test]
    fn lists_are_split_at_commas() {
        let args = compare(&["--allocators", "zbud,zsmalloc", "--codecs", "lz4,zstd:3"]);
        let args = args.expect("valid");
        assert_eq!(args.allocators, [Allocator::Zbud, Allocator::Zsmalloc]);
        let codecs: Vec<String> = args.codecs.iter().map(ToString::to_string).collect();
        assert_eq!(codecs, ["lz4", "zstd:3"]);
    }

    #[test]
    fn page_size_has_two_spellings() {
        for typed in ["16384", "16KiB"] {
            let args = compare(&["--page-size", typed]).expect("valid");
            assert_eq!(args.page_size, Some(PageSize::KIB16));
        }
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for wrong in [
            ["--chain", "3"],
            ["--chain", "17"],
            ["--chooser", "best"],
            ["--page-size", "8KiB"],
            ["--threads", "0"],
            ["--repeat", "0"],
            ["--limit", "64"],
            ["--sample", "1GB"],
            ["--preset", "linux-2.4"],
            ["--format", "xml"],
            ["--pid", "-1"],
            ["--seed", "x"],
        ] {
            assert!(compare(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn trace_excludes_what_it_does_not_use() {
        assert!(compare(&["--trace", "a", "--chain", "4"]).is_ok());
        for other in [["--codecs", "lz4"], ["--pages", "b"], ["--threads", "2"]] {
            assert!(compare(&[&["--trace", "a"], &other[..]].concat()).is_err(), "{other:?}");
        }
    }
}
