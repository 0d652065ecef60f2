//! Memory that processes share since a fork.

use tempfile::tempdir;

use crate::common::{command, needs, read_report};
use crate::runs::{can_manage, text};

/// Makes 24 MiB of random bytes and forks; while the child waits, it makes 24 MiB more, so that
/// what both share has to leave. Then all is checked.
const SHARED: &str = "
import os, zlib
shared = os.urandom(24 << 20)
of_shared = zlib.crc32(shared)
wait, go = os.pipe()
child = os.fork()
if child == 0:
    os.read(wait, 1)
    os._exit(zlib.crc32(shared) != of_shared)
own = os.urandom(24 << 20)
of_own = zlib.crc32(own)
os.write(go, b'x')
ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(ended, zlib.crc32(shared) == of_shared, zlib.crc32(own) == of_own)
";

#[test]
fn what_forks_share_is_stored_once() {
    needs!(can_manage());
    let folder = tempdir().expect("a folder");
    let report = folder.path().join("report");
    let output = command(&["run", "--limit", "32MiB", "--report=json", "--report-file"])
        .arg(&report)
        .args(["--", "python3", "-c", SHARED])
        .output()
        .expect("it starts");
    let ended = (output.status.code(), text(&output.stdout));
    assert_eq!(ended, (Some(0), "0 True True\n".to_owned()), "{}", text(&output.stderr));
    let report = read_report(&report);
    let count = |name: &str| report[name].as_u64().expect("a number");
    // 6,144 pages are shared. Stored for each process, there were 20,000 pages; stored once, there
    // are 12,000 to 15,000.
    assert!(count("peak_stored_pages") < 17_500, "{report}");
}

/// Makes 12 MiB, forks, and has parent and child write other numbers into each page, at the same
/// addresses. Then both check their pages, again and again, while those of the other leave.
const PARTED: &str = "
import os, sys
count = 3072
memory = bytearray(os.urandom(4096)) * count
def number(who, turn, n): return (who << 24 | turn << 16 | n).to_bytes(8, 'big')
child = os.fork()
who = 1 + (child == 0)
for turn in range(4):
    for n in range(count):
        memory[n << 12:(n << 12) + 8] = number(who, turn, n)
    for again in range(2):
        for n in range(count):
            if memory[n << 12:(n << 12) + 8] != number(who, turn, n):
                print(who, turn, n, memory[n << 12:(n << 12) + 8], flush=True)
                os._exit(1)
if child == 0:
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
";

#[test]
fn pages_that_a_fork_parted_do_not_become_each_other() {
    needs!(can_manage());
    let run = ["run", "--limit", "8MiB", "--", "python3", "-c", PARTED];
    let output = command(&run).output().expect("it starts");
    let ended = (output.status.code(), text(&output.stdout));
    assert_eq!(ended, (Some(0), "0\n".to_owned()), "{}", text(&output.stderr));
}
