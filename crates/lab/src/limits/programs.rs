//! The programs, with their inputs: each prints a sum of what it computed.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use zfold_compare::rng::SplitMix64;

use crate::build::project::Project;
use crate::experiment::harness::sized;
use crate::experiment::harness::turns::Fault;
use crate::experiment::system::cleanup::quoted;
use crate::experiment::{Error, Settings};

/// A program, as a shell starts it.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) name: &'static str,
    line: String,
    /// Where its files are.
    folder: PathBuf,
}

impl Program {
    /// Returns the command; `command` runs a program.
    pub(super) fn command(&self, command: impl FnOnce(&'static str) -> Command) -> Command {
        let mut command = command("sh");
        command.arg("-c").arg(&self.line).current_dir(&self.folder);
        // Values that would differ between two runs, and between two machines.
        command.env("LC_ALL", "C").env("PERL_HASH_SEED", "0");
        command
    }
}

/// Fills a hash table in one order and reads it in another, so that every step is somewhere else.
const HASH_TABLE: &str = "\
my ($n, $s, %h) = (ENTRIES, 0); \
for (my $i = 0; $i < $n; $i++) { $h{$i * 40503 % 16777213} = $i } \
for (my $i = 0; $i < $n; $i++) { $s += $h{$i * 7919 % $n * 40503 % 16777213} } \
print \"$s\\n\"";

/// Passes over an array from its begin to its end, eight times.
const ARRAY: &str = "
import numpy
a = numpy.tile(numpy.arange(1000.0), ENTRIES // 1000)
for turn in range(8):
    a += turn
print(a.sum())
";

/// Returns the programs, and puts the files there that they read.
///
/// # Errors
/// The files cannot be written.
pub(super) fn programs(settings: &Settings, folder: &Path) -> Result<Vec<Program>, Error> {
    let entries = sized(settings, 800_000, 100_000).to_string();
    let hash_table = HASH_TABLE.replace("ENTRIES", &entries);
    let entries = sized(settings, 12_000_000, 3_000_000).max(1000).to_string();
    let array = ARRAY.replace("ENTRIES", &entries);
    write_lines(&folder.join("lines"), sized(settings, 2_000_000, 400_000), settings.seed)?;
    match Project::generated(1, settings.seed, folder.join("project")).unpack() {
        Ok(()) => {}
        Err(Fault::Failed(error)) => return Err(error),
        Err(Fault::Missing(what) | Fault::Flawed(what)) => return Err(Error::Other(what)),
    }
    let sort = "sort --parallel=1 -S 1G -o sorted lines && cksum sorted".to_owned();
    let gcc = "gcc -O1 -w -S -o part.s project/part0.c && cksum part.s".to_owned();
    let lines = [
        ("hash table (perl)", format!("perl -e {}", quoted(&hash_table))),
        ("sort", sort),
        ("gcc -O1", gcc),
        ("array in order (numpy)", format!("python3 -c {}", quoted(&array))),
    ];
    let program = |(name, line)| Program { name, line, folder: folder.to_owned() };
    Ok(lines.map(program).into())
}

/// Writes this many lines of random digits.
fn write_lines(path: &Path, count: usize, seed: u64) -> Result<(), Error> {
    let (mut rng, mut file) = (SplitMix64::new(seed), BufWriter::new(File::create(path)?));
    for _ in 0..count {
        writeln!(file, "{:016x}", rng.below(u64::MAX))?;
    }
    Ok(file.flush()?)
}
