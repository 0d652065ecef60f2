//! Who ends when there is no more memory: in a control group at whose limit the kernel kills, and
//! under a store with a limit.

use std::process::{Command, Output};

use zfold_testing::groups::Group;
use zfold_testing::output::assert_line;
use zfold_testing::skip::{has_program, is_root};
use zfold_testing::wait_until;

use crate::common::{command, needs, skip};
use crate::runs::{can_manage, text};

/// Makes 192 MiB that do not compress, and says when it has all of them.
const RANDOM: &str = "
import os
pages = [os.urandom(1 << 20) for n in range(192)]
print(len(pages))
";

const LIMIT: u64 = 64 << 20;

/// Has a child that fills 320 MiB with noise, no faster than a busy machine notices, and tells how
/// that ended and whether its own memory is as it was.
const GREEDY: &str = "
import os, sys, time
mine = bytearray(8 << 20)
mine[::4096] = bytes(i & 255 for i in range(2048))
child = os.fork()
if child == 0:
    noise = []
    for n in range(320):
        noise.append(os.urandom(1 << 20))
        time.sleep(0.01)
    os._exit(0)
status = os.waitpid(child, 0)[1]
right = mine[::4096] == bytes(i & 255 for i in range(2048))
print(child, os.WTERMSIG(status), right)
sys.exit(7)
";

/// Forks again and again while a child, whose noise has no room, is ended: all children have all of
/// their memory.
const FORKS: &str = "
import os, sys
mine = [os.urandom(64) * 64 for n in range(1024)]
hashes = [hash(page) for page in mine]
right = lambda: all(hash(page) == was for page, was in zip(mine, hashes))
greedy = os.fork()
if greedy == 0:
    noise = []
    for n in range(320):
        noise.append(os.urandom(1 << 20))
    os._exit(0)
bad, turns, status = 0, 0, None
while status is None or turns < 20:
    child = os.fork()
    if child == 0:
        os._exit(0 if right() else 1)
    bad += os.waitpid(child, 0)[1] != 0
    turns += 1
    if status is None:
        pid, found = os.waitpid(greedy, os.WNOHANG)
        status = found if pid else None
print(os.WTERMSIG(status), bad, right())
sys.exit(7)
";

/// Checks that the child of [`GREEDY`] alone was ended, and named once.
fn assert_child_ended(output: &Output, parts: &[&str]) {
    let (said, told) = (text(&output.stderr), text(&output.stdout));
    let words: Vec<_> = told.split_whitespace().collect();
    let [child, signal, right] = words[..] else { panic!("{told:?}: {said}") };
    assert_eq!((output.status.code(), signal, right), (Some(7), "9", "True"), "{said}");
    let begin = format!("zfold: process {child} (python3");
    let lines: Vec<_> = said.lines().filter(|line| line.starts_with(&begin)).collect();
    assert_eq!(lines.len(), 1, "{said}");
    parts.iter().for_each(|part| assert!(lines[0].contains(part), "{said}"));
}

#[test]
fn in_a_full_group_the_process_ends_that_needs_the_memory() {
    needs!(can_manage());
    needs!(is_root() && has_program("python3"), "not root, or no python3");
    for limit in ["40MiB", "120MiB", "auto"] {
        let Some(group) = Group::new(&format!("greedy-{limit}"), 2 * LIMIT) else {
            return skip("no control group with a limit of memory can be made here");
        };
        let run = command(&["run", "--limit", limit, "--", "python3", "-c", GREEDY]);
        let output = group.inside(&run).output().expect("sh is installed");
        assert_child_ended(&output, &["was ended: ", "give the container more"]);
        assert_eq!(group.kills(), Some(0), "by the kernel");
        wait_until("the group is empty", || group.processes().is_empty());
    }
}

#[test]
fn under_a_full_store_the_process_ends_that_needs_the_memory() {
    needs!(can_manage());
    needs!(has_program("python3"), "no python3");
    let full = ["run", "--limit", "16MiB", "--store-limit", "32MiB"];
    let output = command(&full).args(["--", "python3", "-c", GREEDY]).output().expect("it starts");
    assert_child_ended(&output, &["was ended: ", "the store is full", "raise --limit"]);
    let output = command(&full).args(["--", "python3", "-c", FORKS]).output().expect("it starts");
    let ended = (output.status.code(), text(&output.stdout));
    assert_eq!(ended, (Some(7), "9 0 True\n".to_owned()), "{}", text(&output.stderr));
}

#[test]
fn a_program_that_cannot_fit_into_its_group_ends_with_a_line_that_names_the_remedy() {
    needs!(can_manage());
    needs!(is_root() && has_program("python3"), "not root, or no python3");
    let Some(group) = Group::new("alone", LIMIT) else {
        return skip("no control group with a limit of memory can be made here");
    };
    let mut alone = Command::new("python3");
    alone.args(["-c", RANDOM]);
    let output = group.inside(&alone).output().expect("sh is installed");
    assert!(!output.status.success(), "alone, it fits: {}", text(&output.stdout));
    assert_eq!(group.kills(), Some(1));
    let group = Group::new("fit", LIMIT).expect("another one");
    let run = command(&["run", "--limit", "auto", "--", "python3", "-c", RANDOM]);
    let output = group.inside(&run).output().expect("sh is installed");
    let remedy = "give the container more, or give --backing a place for what does not fit";
    assert_line(&output, 125, &["the store is full", remedy]);
    assert_eq!(text(&output.stdout), "", "it did not finish");
    assert_eq!(group.kills(), Some(0), "the kernel killed nothing");
    wait_until("the group is empty", || group.processes().is_empty());
}
