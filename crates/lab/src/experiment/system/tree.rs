//! A program with its descendants: their cost, and how much anonymous memory they have.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use zfold_compare::proc;

use crate::experiment::Error;
use crate::experiment::harness::{Cost, Stopwatch};

/// How often a run is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// A run that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// Of the program and all descendants that were waited for.
    pub(crate) cost: Cost,
    /// Its error output.
    pub(crate) complaint: String,
    /// The largest sampled value.
    pub(crate) peak: u64,
}

/// Runs `command` to its end, and looks at something of its process meanwhile. A program that takes
/// longer than `patience` is killed, as its status shows.
///
/// # Errors
/// The program cannot be started, or the system does not report its cost.
pub(crate) fn run(
    command: &mut Command,
    patience: Duration,
    mut look: impl FnMut(u32) -> Option<u64>,
) -> Result<Ended, Error> {
    // A file, since a pipe without a reader would stop it.
    let complaint = tempfile::tempfile()?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(complaint.try_clone()?);
    let (stopwatch, began) = (Stopwatch::of_children()?, Instant::now());
    let mut child = Running(command.spawn()?);
    let mut peak = 0;
    let status = loop {
        if let Some(status) = child.0.try_wait()? {
            break status;
        }
        peak = peak.max(look(child.0.id()).unwrap_or(0));
        if began.elapsed() > patience {
            child.0.kill()?;
        }
        std::thread::sleep(LOOK);
    };
    let cost = stopwatch.stop()?;
    Ok(Ended { status, cost, complaint: text(complaint)?, peak })
}

/// Returns what is in a file: programs may write in any encoding.
fn text(mut file: File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A program that is ended when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the bytes of anonymous memory that a process and its descendants have in RAM; pages
/// that are shared after a fork count for each.
pub(crate) fn anonymous_bytes(root: u32) -> Option<u64> {
    Some(proc::tree(root).into_iter().filter_map(proc::anonymous_bytes).sum())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn a_run_has_a_cost_a_peak_and_a_complaint() {
        let folder = tempfile::tempdir().unwrap();
        let seen = folder.path().join("seen");
        let mut command = Command::new("sh");
        // It works until it has been looked at.
        let work = "until [ -e \"$0\" ]; do :; done; echo no >&2; exit 3";
        command.args(["-c", work]).arg(&seen);
        let mut looks = 0;
        let ended = run(&mut command, Duration::MAX, |_| {
            std::fs::write(&seen, "").unwrap();
            looks += 1;
            Some(looks)
        })
        .unwrap();
        assert_eq!((ended.status.code(), &*ended.complaint), (Some(3), "no\n"));
        assert!(ended.peak == looks && looks > 0);
        assert!(ended.cost.real > 0.0, "{:?}", ended.cost);
    }
    #[test]
    fn what_takes_too_long_is_killed() {
        let mut command = Command::new("sleep");
        let ended = run(command.arg("600"), Duration::from_millis(50), |_| None).unwrap();
        assert_eq!(ended.status.signal(), Some(9));
    }
}
