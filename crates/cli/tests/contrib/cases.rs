//! The script that measures jobs in too little memory (`contrib/cases`).

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::tempdir;

use crate::common::skip;
use crate::contrib;
use zfold_testing::skip::is_root;
use zfold_testing::{groups, wait_until};

#[test]
fn a_measurement_that_is_ended_leaves_no_process_and_no_group() {
    let Some(groups) = groups::folder().filter(|_| is_root()) else {
        return skip("no memory controller, or not root");
    };
    let folder = tempdir().expect("a folder");
    let started = folder.path().join("started");
    for name in ["measure", "charger.c"] {
        fs::copy(contrib(&format!("cases/{name}")), folder.path().join(name)).expect("copied");
    }
    // It leaves the process group of what started it, as daemons do.
    let job = format!(
        "cases=(long)\nmeasure_long() {{ job long sh 64 sh -c \
         'setsid sh -c \"echo \\$\\$ >{0}.new; mv {0}.new {0}; exec sleep 1000\"; true'; }}\n",
        started.display()
    );
    fs::write(folder.path().join("jobs"), job).expect("written");
    let mut measure = Command::new("bash")
        .arg(folder.path().join("measure"))
        .env("ZFOLD", env!("CARGO_BIN_EXE_zfold"))
        .stdout(Stdio::null())
        .spawn()
        .expect("bash is installed");
    wait_until("the job runs", || started.exists());
    let job = fs::read_to_string(&started).expect("a number");
    let group = groups.join(format!("zfold-cases-{}", measure.id()));
    assert!(group.is_dir(), "{}", group.display());
    let pid = rustix::process::Pid::from_child(&measure);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    assert_eq!(measure.wait().expect("it ends").code(), Some(143));
    assert!(!group.exists(), "{}", group.display());
    // A process leaves its group before it is gone, and without a parent it has an entry until
    // process 1 takes its status.
    let stat = Path::new("/proc").join(job.trim()).join("stat");
    wait_until("the job has ended", || {
        fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "))
    });
}
