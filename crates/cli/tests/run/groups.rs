//! `--limit auto` in a control group at whose limit the kernel kills.

use std::process::Command;

use zfold_testing::groups::Group;
use zfold_testing::output::assert_line;
use zfold_testing::skip::{has_program, is_root};
use zfold_testing::wait_until;

use crate::common::{command, skip};
use crate::runs::{can_manage, text};

/// Makes 192 MiB that do not compress, and says when it has all of them.
const RANDOM: &str = "
import os
pages = [os.urandom(1 << 20) for n in range(192)]
print(len(pages))
";

const LIMIT: u64 = 64 << 20;

#[test]
fn a_program_that_cannot_fit_into_its_group_ends_with_a_line_that_names_the_remedy() {
    let test = "a_program_that_cannot_fit_into_its_group_ends_with_a_line_that_names_the_remedy";
    if !can_manage(test) {
        return;
    }
    if !is_root() || !has_program("python3") {
        return skip(test, "not root, or no python3");
    }
    let Some(group) = Group::new("alone", LIMIT) else {
        return skip(test, "no control group with a limit of memory can be made here");
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
