//! Programs that check their own memory; they tell by their exit status.

use crate::job::{Job, check, check_at};
use crate::needs::{python, ready, sized, text};

/// The limit of programs that have a size of their own.
const LIMIT_BYTES: u64 = 16 << 20;

/// Patterns in memory that is kept, by each of the methods that `stress-ng` has.
#[test]
fn stress_ng_verifies_by_all_methods() {
    zfold_testing::needs!(ready(&["stress-ng"]));
    let (bytes, operations) = (sized("24M", "64M"), sized("2000", "100000"));
    let line = format!("--vm 1 --vm-bytes {bytes} --vm-method all --vm-keep --vm-ops {operations}");
    check(|dir| stress_ng(text(dir), &line));
}

fn stress_ng(dir: &str, line: &str) -> Job {
    let common = ["stress-ng", "--temp-path", dir, "--verify", "--timeout", sized("2", "20")];
    let line: Vec<_> = common.into_iter().chain(line.split_whitespace()).collect();
    Job { talks: true, ..Job::new(&line) }
}

/// Runs `stress-ng` so many operations with `line`, under a limit below what it uses.
fn stress(line: &str) {
    if ready(&["stress-ng"]) {
        check_at(LIMIT_BYTES, |dir| stress_ng(text(dir), line));
    }
}

/// A test for each line: its name, the options, and how many operations, few or many.
macro_rules! stress_ng {
    ($($name:ident: $line:literal, $few:literal, $many:literal;)*) => {
        $(#[test] fn $name() {
            stress(&format!("{} {}", $line, sized($few, $many)));
        })*
    };
}

stress_ng! {
    stress_ng_allocates: "--malloc 2 --malloc-bytes 64M --malloc-ops", 2000, 200_000;
    stress_ng_maps: "--mmap 1 --mmap-bytes 32M --mmap-ops", 4, 100;
    stress_ng_remaps: "--mremap 1 --mremap-bytes 32M --mremap-ops", 20, 1000;
    stress_ng_gives_advice: "--madvise 1 --madvise-ops", 10, 200;
    stress_ng_forks: "--fork 2 --fork-vm --fork-ops", 200, 4000;
    // It handles page faults itself.
    stress_ng_handles_its_own_faults:
        "--userfaultfd 1 --userfaultfd-bytes 32M --userfaultfd-ops", 2000, 100_000;
}

/// Memory that is locked stays: the limit is above it.
#[test]
fn memtester_tests_memory() {
    if ready(&["memtester"]) {
        let size = sized("4M", "12M");
        check_at(LIMIT_BYTES, |_| Job { talks: true, ..Job::new(&["memtester", size, "1"]) });
    }
}

/// The tests of Python's own types, and of its threads.
#[test]
fn python_tests_itself() {
    let Some(python) = python("test.test_dict") else { return };
    let short = ["test_bytes", "test_dict"].as_slice();
    let long = [
        "test_bytes",
        "test_array",
        "test_list",
        "test_dict",
        "test_set",
        "test_memoryview",
        "test_zlib",
        "test_pickle",
        "test_json",
        "test_threading",
    ];
    let parts = sized(short, long.as_slice());
    let line = [&[text(&python), "-m", "test", "-q"], parts].concat();
    check_at(LIMIT_BYTES, |_| Job { talks: true, ..Job::new(&line) });
}
