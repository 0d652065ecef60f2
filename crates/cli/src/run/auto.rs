//! `--limit auto` at work: a thread that measures, and sets the limit that the policy chooses.
//!
//! The policy's lock is held while a chosen limit is set, and by `turn` while choosing is turned on
//! or off: so after `turn(false)` has returned, no limit is set but by others. `off` and
//! `own_store` are changed under that lock alone and may be read without it. Nothing waits for this
//! thread, which ends with the process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use zfold_run::{Control, Figures};
use zfold_store::pressure::{Left, MemoryLeft, OwnStalls};

use super::policy::{Measured, Policy};
use super::record::Auto;

/// A limit that is chosen again and again.
#[derive(Clone, Debug)]
pub(super) struct AutoLimit(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    policy: Mutex<Policy>,
    /// Somebody has set another limit.
    off: AtomicBool,
    /// How much compressed pages may take is chosen, too.
    own_store: AtomicBool,
    left: u64,
}

/// Returns the limit with which a run begins.
pub(super) fn first_limit() -> u64 {
    Policy::new(known(MemoryLeft::new().measure())).limit()
}

/// Returns what can be had. Where the kernel tells nothing, nothing is known to be short.
fn known(left: Left) -> u64 {
    left.bytes().unwrap_or(u64::MAX)
}

impl AutoLimit {
    /// Chooses the limit of a run from now on; `own_store`: and how much compressed pages may take.
    /// Without a thread for that, it stays as it is.
    pub(super) fn start(control: Control, own_store: bool) -> Self {
        let memory = MemoryLeft::new();
        let left = known(memory.measure());
        let (off, own_store) = (AtomicBool::new(false), AtomicBool::new(own_store));
        let policy = Mutex::new(Policy::new(left));
        let auto = Self(Arc::new(Shared { policy, off, own_store, left }));
        let chosen = auto.clone();
        // It ends with the process.
        let _ = std::thread::Builder::new()
            .name("zfold-auto".to_owned())
            .spawn(move || chosen.follow(&control, &memory));
        auto
    }

    fn follow(&self, control: &Control, memory: &MemoryLeft) {
        let mut stalls = OwnStalls::new();
        let (mut before, mut then) = (counted(control, &memory.measure()), Instant::now());
        let mut pause = self.policy().next_look(0);
        loop {
            std::thread::sleep(pause);
            let (earlier, now, later) = (control.taken(), memory.measure(), control.taken());
            // What the program took in between is off what is left, and so counts here. If it gave
            // something up, that counts twice, and at the next looks once (policy/A3).
            let (resident, held) = (earlier.0.max(later.0), later.1);
            let (counts, at) = (counted(control, &now), Instant::now());
            let elapsed = at.saturating_duration_since(then);
            let seconds = elapsed.as_secs_f64().max(1e-3);
            let rate = |which: usize| counts[which].saturating_sub(before[which]) as f64 / seconds;
            let measured = Measured {
                left: known(now),
                resident,
                held,
                stored: counts[2],
                stalls: stalls.as_mut().and_then(OwnStalls::measure),
                refaults: rate(0),
                file_refaults: rate(1),
                elapsed,
            };
            let mut policy = self.policy();
            let limit = policy.follow(&measured);
            pause = policy.next_look(measured.left);
            // Set while the policy is held, so that nobody turns it off in between.
            if self.is_on() {
                control.set_limit_together(limit);
                // What the machine has changes with what others do: no reason to end the run.
                let is_cgroup = now.cgroup.is_some_and(|left| left <= measured.left);
                if is_cgroup && self.0.own_store.load(Ordering::Relaxed) {
                    let most = policy.store_limit(&measured);
                    // What is held by now is the least that can be set.
                    let set = control.set_store_limit(most);
                    let _ = set.or_else(|held| control.set_store_limit(held));
                }
            }
            drop(policy);
            (before, then) = (counts, at);
        }
    }

    fn policy(&self) -> MutexGuard<'_, Policy> {
        // A panic ends the process.
        self.0.policy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the limit chosen, or not: another one was set, or is about to be.
    pub(super) fn turn(&self, on: bool) {
        let _policy = self.policy();
        self.0.off.store(!on, Ordering::Relaxed);
    }

    /// Leaves how much compressed pages may take to others from now on.
    pub(super) fn leave_store(&self) {
        let _policy = self.policy();
        self.0.own_store.store(false, Ordering::Relaxed);
    }

    /// Returns whether the limit is chosen now.
    pub(super) fn is_on(&self) -> bool {
        !self.0.off.load(Ordering::Relaxed)
    }

    /// Returns what was chosen, and by what.
    pub(super) fn record(&self) -> Auto {
        let (least_limit_bytes, most_limit_bytes) = self.policy().range();
        let steered_by =
            OwnStalls::new().map_or("files read again", |stalls| stalls.source()).to_owned();
        Auto { left_at_start_bytes: self.0.left, least_limit_bytes, most_limit_bytes, steered_by }
    }
}

/// Returns how many pages had left and were asked for so far, how many of files were read again,
/// and the size of the pages that are compressed now.
fn counted(control: &Control, left: &Left) -> [u64; 3] {
    let Figures { refaults_total, loads_total, stored_pages_bytes, .. } = control.state().figures;
    [refaults_total + loads_total, left.file_refaults.unwrap_or(0), stored_pages_bytes]
}
