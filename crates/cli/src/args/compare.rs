//! The arguments of `zfold compare`.

use std::path::PathBuf;

use clap::ValueHint;
use zfold_compare::compare::{Allocator, CodecSpec, PageSize, Preset};
use zfold_compare::rng::Xorshift64;
use zfold_console::format::Format;

use super::values::{allocators, page_sizes, presets};
use crate::shared::size::parse_size;

pub(super) const EXAMPLES: &str = "\
Examples:
  Compare on the built-in captures:
    zfold compare
  What would compressing the memory of process 4711 save?
    sudo zfold compare --pid 4711
  The same question for a file, with stronger codecs:
    zfold compare --file data.bin --codecs lz4,zstd:9
  What fits under a limit of 64 MiB:
    zfold compare --file data.bin --limit 64MiB
  Pool sizes as in a Linux 6.1 kernel:
    zfold compare --preset linux-6.1 --codecs lz4
  For a program:
    zfold compare --format json | jq '.records[] | [.input, .allocator, .pool_bytes]'

Exit status: 0 done, 1 failed (bad input, wrong bytes), 2 wrong usage.";

#[derive(Debug, clap::Args)]
pub(crate) struct CompareArgs {
    /// Any files, cut into pages, without their holes; the last page is padded with zeros.
    #[arg(long, value_name = "FILE", num_args = 1.., value_hint = ValueHint::FilePath)]
    #[arg(help_heading = "Input")]
    pub(crate) file: Vec<PathBuf>,

    /// A live process: its anonymous memory, without stacks. Needs the right to ptrace it.
    #[arg(long, help_heading = "Input")]
    pub(crate) pid: Option<u32>,

    /// Take at most SIZE from each --pid and --file, as a uniform random sample of pages.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_size)]
    #[arg(help_heading = "Input")]
    pub(crate) sample: u64,

    /// Allocators to compare: zbud, z3fold, zsmalloc, fit [default: all; with --preset, all except
    /// fit].
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "What to compare")]
    #[arg(value_parser = allocators())]
    pub(crate) allocators: Vec<Allocator>,

    /// Codecs to compare, optionally with a level: lz4, page, zstd, lzo; zstd:9
    /// [default: lz4,zstd,page; with --preset, lz4,zstd].
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "What to compare")]
    pub(crate) codecs: Vec<CodecSpec>,

    /// Imitate a kernel: linux-6.1 has chains of 4 pages, the old chooser, drops pages that do not
    /// compress, and puts 8 bytes before objects in zbud and z3fold; linux-6.18 has chains of 8
    /// pages, the new chooser, and keeps pages that do not compress. Other options override these
    /// settings.
    #[arg(long, value_name = "KERNEL", help_heading = "What to compare")]
    #[arg(value_parser = presets())]
    pub(crate) preset: Option<Preset>,

    /// Most pages in a zspage of zsmalloc, 4 to 16 [default: 8].
    #[arg(long, value_name = "PAGES", help_heading = "What to compare")]
    #[arg(value_parser = clap::value_parser!(u32).range(4..=16))]
    pub(crate) chain: Option<u32>,

    /// Size of a page [default: 4KiB].
    #[arg(long, value_name = "SIZE", help_heading = "What to compare")]
    #[arg(value_parser = page_sizes())]
    pub(crate) page_size: Option<PageSize>,

    /// Most memory for pool, tables and codec together, such as 64MiB; pages beyond it are
    /// rejected [default: none].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    #[arg(help_heading = "What to compare")]
    pub(crate) limit: Option<u64>,

    /// Seed of the random orders and samples; the same seed repeats a run. The default is the seed
    /// with which a real kernel's pool sizes were measured.
    #[arg(long, value_name = "NUMBER", default_value_t = Xorshift64::SEED)]
    #[arg(help_heading = "How to measure")]
    pub(crate) seed: u64,

    /// Output format; in json and csv, sizes are bytes and times nanoseconds.
    #[arg(long, value_enum, default_value_t = Format::Table, help_heading = "Output")]
    pub(crate) format: Format,
}
