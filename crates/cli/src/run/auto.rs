//! `--limit auto` at work: a thread that measures, and sets the limit that the policy chooses.
//!
//! The policy's lock is held while a chosen limit is set, and by `turn` while choosing is turned on
//! or off: so after `turn(false)` has returned, no limit is set but by others. `off` is changed
//! under that lock alone and may be read without it. Nothing waits for this thread, which ends with
//! the process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use zfold_run::{Control, Figures};
use zfold_store::pressure::{OwnStalls, memory_left};

use super::policy::{Measured, Policy};
use super::record::Auto;

/// A limit that is chosen again and again.
#[derive(Clone, Debug)]
pub(super) struct AutoLimit(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    policy: Mutex<Policy>,
    /// Another limit was set.
    off: AtomicBool,
    left: u64,
}

/// Returns the limit with which a run begins.
pub(super) fn first_limit() -> u64 {
    Policy::new(left()).limit()
}

/// Returns what can be had. Where the kernel has no figures, memory counts as not short.
fn left() -> u64 {
    memory_left().unwrap_or(u64::MAX)
}

impl AutoLimit {
    /// Chooses the limit of a run from now on. Without a thread for that, it stays as it is.
    pub(super) fn start(control: Control) -> Self {
        let left = left();
        let policy = Policy::new(left);
        let shared = Shared { policy: Mutex::new(policy), off: AtomicBool::new(false), left };
        let auto = Self(Arc::new(shared));
        let chosen = auto.clone();
        // It ends with the process.
        let _ = std::thread::Builder::new()
            .name("zfold-auto".to_owned())
            .spawn(move || chosen.follow(&control));
        auto
    }

    fn follow(&self, control: &Control) {
        let mut stalls = OwnStalls::new();
        let (mut before, mut then) = (control.state().figures, Instant::now());
        let mut pause = Policy::next_look(0);
        loop {
            std::thread::sleep(pause);
            let (now, at, left) = (control.state().figures, Instant::now(), left());
            let elapsed = at.saturating_duration_since(then);
            let measured = Measured {
                left,
                resident: now.resident_bytes,
                stalls: stalls.as_mut().and_then(OwnStalls::measure),
                refaults: asked_for(&now, &before) / elapsed.as_secs_f64().max(1e-3),
                elapsed,
            };
            let mut policy = self.policy();
            let limit = policy.follow(&measured);
            pause = Policy::next_look(left);
            // Set while the policy is held, so that no other thread turns it off in between.
            if !self.0.off.load(Ordering::Relaxed) && limit != now.limit_bytes {
                control.set_limit(limit);
            }
            drop(policy);
            (before, then) = (now, at);
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

    /// Returns whether the limit is chosen now.
    pub(super) fn is_on(&self) -> bool {
        !self.0.off.load(Ordering::Relaxed)
    }

    /// Returns what was chosen, and by what.
    pub(super) fn record(&self) -> Auto {
        let (least_limit_bytes, most_limit_bytes) = self.policy().range();
        let steered_by = OwnStalls::new().map_or("refaults", |stalls| stalls.source()).to_owned();
        Auto { left_at_start_bytes: self.0.left, least_limit_bytes, most_limit_bytes, steered_by }
    }
}

/// Returns the pages that left and came back between two looks.
fn asked_for(now: &Figures, before: &Figures) -> f64 {
    let total = |run: &Figures| run.refaults_total + run.loads_total;
    total(now).saturating_sub(total(before)) as f64
}
