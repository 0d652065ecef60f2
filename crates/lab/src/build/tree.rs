//! A program with its descendants: what they cost, and how much anonymous memory they have.

use std::io;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::experiment::Error;
use crate::experiment::harness::{Cost, Stopwatch};
use crate::proc;

/// How often a run is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// A run that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    /// Of the program and all descendants that were waited for.
    pub(super) cost: Cost,
    /// What it wrote to its error output.
    pub(super) complaint: String,
    /// The largest value of what was looked at.
    pub(super) peak: u64,
}

/// Runs `command` to its end, and looks at something of its process meanwhile.
///
/// # Errors
/// The program cannot be started, or the system does not tell what it cost.
pub(super) fn run(
    command: &mut Command,
    mut look: impl FnMut(u32) -> Option<u64>,
) -> Result<Ended, Error> {
    // A file, since a pipe that nobody reads would stop it.
    let mut log = tempfile::tempfile()?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.try_clone()?);
    let stopwatch = Stopwatch::of_children()?;
    let mut child = Running(command.spawn()?);
    let mut peak = 0;
    let status = loop {
        if let Some(status) = child.0.try_wait()? {
            break status;
        }
        peak = peak.max(look(child.0.id()).unwrap_or(0));
        std::thread::sleep(LOOK);
    };
    let cost = stopwatch.stop()?;
    let mut complaint = String::new();
    io::Seek::rewind(&mut log)?;
    // Compilers may complain in any encoding.
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut log, &mut bytes)?;
    complaint.push_str(&String::from_utf8_lossy(&bytes));
    Ok(Ended { status, cost, complaint, peak })
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
pub(super) fn anonymous_bytes(root: u32) -> Option<u64> {
    Some(proc::tree(root).into_iter().filter_map(proc::anonymous_bytes).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_a_cost_a_peak_and_a_complaint() {
        let mut command = Command::new("sh");
        command
            .args(["-c", "n=0; while [ $n -lt 30000 ]; do n=$((n+1)); done; echo no >&2; exit 3"]);
        let mut looks = 0;
        let ended = run(&mut command, |_| {
            looks += 1;
            Some(looks)
        })
        .unwrap();
        assert_eq!((ended.status.code(), &*ended.complaint), (Some(3), "no\n"));
        assert!(ended.peak == looks && looks > 0);
        assert!(ended.cost.real > 0.0, "{:?}", ended.cost);
    }
}
