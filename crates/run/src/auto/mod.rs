//! A run fits into its control group: a thread measures, and sets what the policy leaves for the
//! program and its compressed pages together. That is the only limit (`auto`), or there is another
//! one, and the lower of the two counts.
//!
//! The policy's lock is held while a limit of the store is set, so after `leave_store` has returned
//! none is set but by others. Nothing waits for this thread, which ends with the process.

mod policy;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use zfold_pool::Lock;
use zfold_store::pressure::{Left, MemoryLeft, OwnStalls};

use crate::control::Control;
use crate::figures::Figures;
use policy::{Measured, Policy};

/// What a run may take, chosen again and again.
#[derive(Clone)]
pub struct GroupLimit(Arc<Shared>);

impl std::fmt::Debug for GroupLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("GroupLimit").finish()
    }
}

struct Shared {
    control: Control,
    policy: Lock<Policy>,
    /// Nobody has set a limit.
    auto: AtomicBool,
    /// How much compressed pages may take is chosen, too.
    own_store: AtomicBool,
    left: u64,
}

/// Returns what can be had. Where the kernel tells nothing, nothing is known to be short.
fn known(left: Left) -> u64 {
    left.bytes().unwrap_or(u64::MAX)
}

impl GroupLimit {
    /// Returns the limit in bytes with which a run that has no other should begin.
    pub fn first() -> u64 {
        Policy::new(known(MemoryLeft::new().measure())).limit()
    }

    /// Chooses what a run may take from now on; `auto`: it has no other limit; `own_store`: and how
    /// much of that compressed pages may take. Without a thread for that, all stays as it is.
    pub fn start(control: Control, memory: MemoryLeft, auto: bool, own_store: bool) -> Self {
        let now = memory.measure();
        let left = known(now);
        let policy = Lock::new(Policy::new(left));
        let (is_auto, own_store) = (AtomicBool::new(false), AtomicBool::new(own_store));
        let group = Self(Arc::new(Shared { control, policy, auto: is_auto, own_store, left }));
        if auto {
            group.be_the_limit();
        } else {
            group.set(group.0.policy.lock().limit(), now.cgroup == Some(left));
        }
        let chosen = group.clone();
        // It ends with the process.
        let _ = std::thread::Builder::new()
            .name("zfold-group".to_owned())
            .spawn(move || chosen.follow(&memory, &now));
        group
    }

    fn follow(&self, memory: &MemoryLeft, first: &Left) {
        let control = &self.0.control;
        let mut stalls = OwnStalls::new();
        let (mut before, mut then) = (counted(control, first), Instant::now());
        let mut pause = self.0.policy.lock().next_look(0);
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
                unwritten: now.unwritten,
                resident,
                held,
                stored: counts[2],
                stalls: stalls.as_mut().and_then(OwnStalls::measure),
                refaults: rate(0),
                file_refaults: rate(1),
                elapsed,
            };
            let auto = self.is_auto();
            let mut policy = self.0.policy.lock();
            // Beside a limit that somebody has set, nothing is withheld.
            let limit = policy.follow(&if auto { measured } else { measured.calm() });
            pause = policy.next_look(measured.left);
            // What the machine has changes with what others do: no reason to end the run.
            let is_cgroup = now.cgroup == Some(measured.left);
            self.set(limit, is_cgroup);
            if is_cgroup && self.0.own_store.load(Ordering::Relaxed) {
                let most = policy.store_limit(&measured);
                // What is held by now is the least that can be set.
                let set = control.set_store_limit(most);
                let _ = set.or_else(|held| control.set_store_limit(held));
            }
            drop(policy);
            (before, then) = (counts, at);
        }
    }

    /// Sets what the policy leaves, `is_cgroup`: below the limit of a cgroup. For what the machine
    /// has, which changes with what others do, a run gets no less than somebody has set.
    fn set(&self, limit: u64, is_cgroup: bool) {
        let counts = is_cgroup || self.is_auto();
        self.0.control.set_limit_together(if counts { limit } else { u64::MAX });
    }

    /// Leaves the run no limit but this one, from now on.
    pub fn be_the_limit(&self) {
        self.0.auto.store(true, Ordering::Relaxed);
        self.set(self.0.policy.lock().limit(), false);
        self.0.control.set_limit(u64::MAX);
    }

    /// Says that the run has got a limit of its own.
    pub fn leave_limit(&self) {
        self.0.auto.store(false, Ordering::Relaxed);
    }

    /// Leaves how much compressed pages may take to others from now on.
    pub fn leave_store(&self) {
        let _policy = self.0.policy.lock();
        self.0.own_store.store(false, Ordering::Relaxed);
    }

    /// Returns whether the run has no other limit.
    pub fn is_auto(&self) -> bool {
        self.0.auto.load(Ordering::Relaxed)
    }

    /// Returns how many bytes were left at the start.
    pub fn left_at_start(&self) -> u64 {
        self.0.left
    }

    /// Returns the least and the most bytes that it left for what is resident.
    pub fn range(&self) -> (u64, u64) {
        self.0.policy.lock().range()
    }
}

/// Returns how many pages had left and were asked for so far, how many of files were read again,
/// and the size of the pages that are compressed now.
fn counted(control: &Control, left: &Left) -> [u64; 3] {
    let Figures { refaults_total, loads_total, stored_pages_bytes, .. } = control.state().figures;
    [refaults_total + loads_total, left.file_refaults.unwrap_or(0), stored_pages_bytes]
}
