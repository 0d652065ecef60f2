//! A program with its descendants: what they cost, and how much anonymous memory they have.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::experiment::Error;
use crate::experiment::harness::{Cost, children_time};

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
    let (user_before, sys_before) = children_time()?;
    let start = Instant::now();
    let mut child = Running(command.spawn()?);
    let mut peak = 0;
    let status = loop {
        if let Some(status) = child.0.try_wait()? {
            break status;
        }
        peak = peak.max(look(child.0.id()).unwrap_or(0));
        std::thread::sleep(LOOK);
    };
    let real = start.elapsed().as_secs_f64();
    let (user, sys) = children_time()?;
    let cost = Cost { real, user: user - user_before, sys: sys - sys_before };
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
    let mut processes = BTreeMap::new();
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        let Some(number) = number else { continue };
        // It may have ended in between.
        let Ok(status) = fs::read_to_string(entry.path().join("status")) else { continue };
        if let Some(process) = parse(&status) {
            processes.insert(number, process);
        }
    }
    Some(sum(root, &processes))
}

/// Returns the parent and the resident anonymous bytes in a `/proc/PID/status` text.
fn parse(status: &str) -> Option<(u32, u64)> {
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let parent = field("PPid:")?.parse().ok()?;
    // Threads of the kernel and processes that have ended have none.
    let kibibytes = field("RssAnon:").and_then(|text| text.strip_suffix(" kB"));
    Some((parent, kibibytes.map_or(Some(0), |text| text.parse().ok())? << 10))
}

/// Returns the sum over `root` and its descendants; `processes` has the parent and the bytes of
/// each.
fn sum(root: u32, processes: &BTreeMap<u32, (u32, u64)>) -> u64 {
    let descends = |mut process: u32| {
        // Numbers may have been reused while they were read, so that parents make a ring.
        for _ in 0..processes.len() {
            match processes.get(&process) {
                _ if process == root => return true,
                Some(&(parent, _)) => process = parent,
                None => return false,
            }
        }
        false
    };
    let of = processes.iter().filter(|(process, _)| descends(**process));
    of.map(|(_, (_, bytes))| bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_that_of_all_descendants() {
        let processes = BTreeMap::from([
            (1, (0, 1)),
            (10, (1, 2)),
            (11, (10, 4)),
            (12, (11, 8)),
            (20, (1, 16)),
            (30, (31, 32)),
            (31, (30, 64)),
        ]);
        assert_eq!(sum(10, &processes), 14);
        assert_eq!(sum(99, &processes), 0);
        assert_eq!(parse("Name:\tx\nPPid:\t7\nRssAnon:\t   12 kB\n"), Some((7, 12 << 10)));
        assert_eq!(parse("Name:\tkthreadd\nPPid:\t0\n"), Some((0, 0)));
        assert_eq!(parse("Name:\tx\n"), None);
    }

    #[test]
    fn this_process_has_memory() {
        let touched = vec![1_u8; 8 << 20];
        let bytes = anonymous_bytes(std::process::id()).unwrap();
        assert!(bytes >= touched.len() as u64, "{bytes}");
    }

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
