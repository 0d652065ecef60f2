//! The program without a limit, to compare with.

use std::collections::HashMap;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use zfold_vmem::run::Inherited;
use zfold_vmem::run::internals::die_of;

use super::front::{Target, Targets, held};
use super::plan::Plan;
use super::record::{Baseline, End};
use super::{cannot_start, failed};
use crate::exit::Failure;

/// Least time between two looks at the memory of the tree.
const INTERVAL: Duration = Duration::from_millis(10);

/// So many times as long as a look takes, is nothing looked at.
const REST: u32 = 10;

/// Runs the program to its end, with nothing to read and nobody who listens. A signal meanwhile
/// ends this process when the program has ended.
pub(super) fn run(
    plan: &Plan,
    inherited: Inherited,
    targets: &Targets,
) -> Result<Baseline, Failure> {
    let mut command = Command::new(&plan.program);
    command.args(&plan.args);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    inherited.pass_on(&mut command);
    let started = Instant::now();
    let mut child = command.spawn().map_err(|error| cannot_start(plan, &error))?;
    let root = child.id();
    *held(targets) = Target::Baseline(root.cast_signed(), None);
    let (ended, peak) = std::thread::scope(|scope| {
        let (stop, stopped) = mpsc::channel();
        let watcher = scope.spawn(move || watch(root, &stopped));
        let ended = child.wait();
        let wall = started.elapsed();
        drop(stop);
        (ended.map(|ended| (ended, wall)), watcher.join().unwrap_or(0))
    });
    let (status, wall) = ended.map_err(|error| failed("wait for the program", &error))?;
    let target = std::mem::replace(&mut *held(targets), Target::Nobody(None));
    if let Target::Baseline(_, Some(signal)) = target {
        die_of(signal);
    }
    Ok(Baseline {
        exit: End::of(status),
        wall_ns: u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX),
        peak_resident_bytes: peak,
    })
}

/// Returns the most that was seen resident until the other end of `stopped` goes.
fn watch(root: u32, stopped: &Receiver<()>) -> u64 {
    let mut peak = 0;
    loop {
        let began = Instant::now();
        peak = peak.max(resident(root));
        let pause = (began.elapsed() * REST).max(INTERVAL);
        if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
            return peak;
        }
    }
}

/// Returns the anonymous memory of a process and its descendants that is resident, in bytes.
fn resident(root: u32) -> u64 {
    let tree = tree(root);
    // Shared pages are counted once, which takes longer to find out.
    let of: fn(u32) -> Option<u64> = match tree.len() {
        1 => |process| bytes(process, "status", "RssAnon:"),
        _ => |process| bytes(process, "smaps_rollup", "Pss_Anon:"),
    };
    tree.into_iter().filter_map(of).sum()
}

/// Returns a figure of a file of a process that counts in KiB.
fn bytes(process: u32, file: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/{file}")).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns a process and its descendants.
fn tree(root: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
        if let Some(parent) = parent(process) {
            children.entry(parent).or_default().push(process);
        }
    }
    let mut tree = vec![root];
    let mut seen = 0;
    while seen < tree.len() {
        tree.extend(children.remove(&tree[seen]).unwrap_or_default());
        seen += 1;
    }
    tree
}

/// Returns the parent of a process.
fn parent(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name before may have brackets and spaces of its own.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_its_descendants_and_their_memory() {
        let mut command = Command::new("sh");
        // The shell stays, as the pipe is not its last command.
        command.args(["-c", "cat | cat; true"]).stdin(Stdio::piped());
        let mut child = command.spawn().expect("sh runs");
        while tree(child.id()).len() < 3 {
            std::thread::yield_now();
        }
        assert!(resident(child.id()) > 0);
        drop(child.stdin.take());
        assert!(child.wait().expect("it ends").success());
    }
}
