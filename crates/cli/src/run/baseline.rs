//! The program without a limit, to compare with.

use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use zfold_compare::proc;
use zfold_run::{Inherited, die_of};

use super::failure::{cannot_start, failed};
use super::plan::RunPlan;
use super::recipients::{Recipient, Recipients};
use super::record::{Baseline, End};
use crate::shared::exit::Failure;
use crate::shared::secret::without_own_variables;

/// Least time between two looks at the memory of the tree.
const INTERVAL: Duration = Duration::from_millis(10);

/// The pause between two looks is this many times as long as a look takes.
const REST: u32 = 10;

/// Runs the program to its end, without input and with its output discarded. A signal meanwhile
/// ends this process when the program has ended.
pub(super) fn run(
    plan: &RunPlan,
    inherited: Inherited,
    recipients: &Recipients,
) -> Result<Baseline, Failure> {
    let mut command = Command::new(plan.program());
    command.args(plan.args());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    inherited.pass_on(without_own_variables(&mut command));
    let started = Instant::now();
    let mut child = command.spawn().map_err(|error| cannot_start(plan, &error))?;
    let root = child.id();
    *recipients.lock() = Recipient::Baseline(root.cast_signed(), None);
    let (ended, peak) = std::thread::scope(|scope| {
        let (stop, stopped) = mpsc::channel();
        let watcher = scope.spawn(move || watch(root, &stopped));
        let ended = child.wait();
        let wall = started.elapsed();
        drop(stop);
        (ended.map(|ended| (ended, wall)), watcher.join().unwrap_or(0))
    });
    let (status, wall) = ended.map_err(|error| failed("wait for the program", &error))?;
    let target = std::mem::replace(&mut *recipients.lock(), Recipient::Nobody(None));
    if let Recipient::Baseline(_, Some(signal)) = target {
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
    let tree = proc::tree(root);
    // Shared pages are counted once, which takes longer to find out.
    let of = match tree.len() {
        1 => proc::anonymous_bytes,
        _ => proc::proportional_anonymous_bytes,
    };
    tree.into_iter().filter_map(of).sum()
}
