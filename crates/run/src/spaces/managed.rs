//! One address space with its lock, its access and its charges.
//!
//! `space` is the *core*: the state of each page. The locks here are taken in the order of
//! [`shared`](crate::shared): `helper`, then `space`, then `unclaimed`; all others are leaves.
//! Changes under the core's lock are charged when it is released ([`Held`]), so charges agree with
//! the core whenever the lock is free. The atomics are hints or single facts that may be read
//! without any lock: `dead` stays set for a space.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use zfold_pool::sound;

use crate::core::kept::Kept;
use crate::core::pages::Counts;
use crate::core::ranges::Pages;
use crate::core::space::Space;
use crate::link::SpaceId;
use crate::spaces::access::Access;
use crate::spaces::budget::Budget;
use crate::spaces::helper::Helper;
use crate::sys::proc;

/// An address space.
pub(crate) struct Managed {
    pub id: SpaceId,
    /// A process that has it, as far as known; 0 for a child that the tracer has not seen.
    pid: AtomicI32,
    budget: Arc<Budget>,
    space: Mutex<Space>,
    /// Operations from outside; set at attach or, for a child of an attached space, at its birth.
    access: OnceLock<Access>,
    /// Operations from inside; set at attach, and unset while it has no helper.
    helper: Mutex<Option<Helper>>,
    /// Whether there is one.
    attached: AtomicBool,
    /// Whether there ever was.
    pub was_attached: AtomicBool,
    /// When its helper ended, if it has no other yet; threads that wait for that helper need not
    /// wait any longer.
    helper_ended: Mutex<Option<Instant>>,
    /// It cannot be attached.
    pub refused: AtomicBool,
    /// The address space is gone or lost: nothing more can be done there.
    pub dead: AtomicBool,
    /// Closed ranges may no longer be mapped, without a message.
    pub doubt: AtomicBool,
    /// Present pages of closed ranges, and pages that were seen elsewhere.
    charged: Mutex<Charged>,
    /// Pages that are counted both here and in another space.
    credit: AtomicUsize,
    /// Set if it was forked, or forked from.
    pub sharing: Mutex<Option<Sharing>>,
    /// Threads that have it.
    pub tasks: Mutex<BTreeSet<i32>>,
    /// Pages that never leave.
    pub kept: Mutex<Kept>,
    /// Children that were made and that the tracer has not claimed. Messages are read under this
    /// lock, so that a thread that takes it after a fork finds the child.
    pub unclaimed: Mutex<Vec<Arc<Managed>>>,
    /// Thread of the helper, by its number in the namespace of the program; 0 if there is none.
    helper_thread: AtomicI32,
    /// The same by its number here.
    helper_here: AtomicI32,
    /// Messages since it was polled first.
    pub messages: AtomicU32,
    /// Threads that were stopped on request.
    pub visited: Mutex<BTreeSet<i32>>,
    /// The last look at all mappings, if there was one.
    pub survey: Mutex<Option<Survey>>,
    /// When the marks of the mappings may be read again.
    pub next_look_at_own: Mutex<Option<Instant>>,
    /// Its helper may change protections.
    pub may_protect: AtomicBool,
    /// Pages that could not be moved leave while its threads are held, as far as was seen.
    pub leaves_late: AtomicBool,
    /// The turn in which all its threads were held last.
    pub stands: AtomicU64,
    /// A thread had to wait for the lock of the core.
    held_up: AtomicBool,
    /// Memory that a thread in a call is about to make the program's own (close/C5).
    pub asked_for: Mutex<BTreeMap<i32, Pages>>,
}

/// A survey of all mappings, which is expensive if there are many.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Survey {
    /// When it ended, and how long it took.
    pub at: Instant,
    /// Same as above.
    pub took: Duration,
    /// How many pages it left open.
    pub left: usize,
    /// The pause until the next, as a multiple of the time that it took.
    pub rest: u32,
}

impl Survey {
    /// Returns whether the next is due, with so many pages open, among so many spaces.
    pub(crate) fn is_due(&self, open: usize, spaces: usize) -> bool {
        let crowd = (spaces / CROWD).max(1) as u32;
        // In a crowd, a space that opens nothing stays as it is.
        let may = crowd == 1 || open > self.left;
        may && self.at.elapsed() >= self.took * (self.rest * crowd)
    }
}

/// A number of spaces from which on each is surveyed less often the more there are, so that all
/// surveys together do not take longer.
pub(crate) const CROWD: usize = 16;

/// The state of the pages that forks share, which the program's writes make its own.
#[derive(Debug)]
pub(crate) struct Sharing {
    /// When it is measured next.
    pub due: Instant,
    /// Faults that the kernel had served alone, and pages that were open, at the last look after
    /// the last measurement.
    pub seen: Option<(usize, usize)>,
}

impl Sharing {
    /// Records the current values; returns how many pages may have been copied since the last look:
    /// each copy is a fault, and so is each new page.
    pub(crate) fn copies(&mut self, faults: usize, open: usize) -> usize {
        let (faults_before, open_before) =
            self.seen.replace((faults, open)).unwrap_or((faults, open));
        let grown = open.saturating_sub(open_before);
        faults.saturating_sub(faults_before).saturating_sub(grown)
    }
}

#[derive(Debug, Default)]
struct Charged {
    present: Chargeable,
    open: usize,
    seen: usize,
}

/// The charges of closed ranges.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Chargeable {
    /// Pages that are there.
    present: usize,
    /// Of these, pages that cannot leave.
    fixed: usize,
    /// Of these, pages that are about to be discarded.
    doomed: usize,
    /// Copies that the store has of pages, and that no other space is charged for.
    copied: usize,
}

impl Chargeable {
    fn of(space: &mut Space) -> Self {
        let Counts { present, fixed, doomed, .. } = space.counts();
        Self { present, fixed, doomed, copied: space.own_copies() }
    }
}

/// Takes a lock; a thread that panicked under it left the guarded state usable, or ended the tree.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    sound(mutex.lock())
}

impl Managed {
    /// Returns a space that is all open and has no charges yet.
    pub(crate) fn new(id: SpaceId, pid: i32, budget: &Arc<Budget>) -> Self {
        Self {
            id,
            pid: AtomicI32::new(pid),
            budget: Arc::clone(budget),
            space: Mutex::default(),
            access: OnceLock::new(),
            helper: Mutex::default(),
            attached: AtomicBool::new(false),
            was_attached: AtomicBool::new(false),
            helper_ended: Mutex::default(),
            refused: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            doubt: AtomicBool::new(false),
            charged: Mutex::default(),
            credit: AtomicUsize::new(0),
            sharing: Mutex::default(),
            tasks: Mutex::default(),
            kept: Mutex::default(),
            unclaimed: Mutex::default(),
            helper_thread: AtomicI32::new(0),
            helper_here: AtomicI32::new(0),
            messages: AtomicU32::new(0),
            visited: Mutex::default(),
            survey: Mutex::default(),
            next_look_at_own: Mutex::default(),
            may_protect: AtomicBool::new(false),
            leaves_late: AtomicBool::new(false),
            stands: AtomicU64::new(0),
            held_up: AtomicBool::new(false),
            asked_for: Mutex::default(),
        }
    }

    /// Takes the lock of the core. Changes under it are charged when it is released.
    pub(crate) fn lock(&self) -> Held<'_> {
        if let Some(held) = self.try_lock() {
            return held;
        }
        // Relaxed: a hint.
        self.held_up.store(true, Ordering::Relaxed);
        Held::new(self, lock(&self.space))
    }

    /// Returns whether a thread has waited for the lock since the last call.
    pub(crate) fn take_held_up(&self) -> bool {
        self.held_up.swap(false, Ordering::Relaxed)
    }

    /// The same, unless another thread has it.
    pub(crate) fn try_lock(&self) -> Option<Held<'_>> {
        Some(Held::new(self, self.space.try_lock().ok()?))
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid.load(Ordering::Relaxed)
    }

    pub(crate) fn set_pid(&self, pid: i32) {
        self.pid.store(pid, Ordering::Relaxed);
    }

    /// Returns the operations from outside, if any range is or may be closed.
    pub(crate) fn access(&self) -> Option<&Access> {
        self.access.get()
    }

    /// Sets the access, once.
    pub(crate) fn set_access(&self, access: Access) {
        assert!(self.access.set(access).is_ok(), "set once");
    }

    /// Takes the lock of the helper, which exists if the space is attached.
    pub(crate) fn helper(&self) -> MutexGuard<'_, Option<Helper>> {
        lock(&self.helper)
    }

    /// Returns whether the space may get a helper: no thread is using a former one, whose staging
    /// would be replaced. A thread that was using it when it ended, and needed nothing more, has
    /// left it behind; it is dropped here.
    pub(crate) fn may_be_attached(&self) -> bool {
        if self.is_attached() {
            return false;
        }
        let Ok(mut helper) = self.helper.try_lock() else { return false };
        if helper.is_some() && self.has_lost_helper() {
            self.drop_helper(&mut helper);
        }
        helper.is_none()
    }

    /// Sets the helper.
    pub(crate) fn set_helper(&self, helper: Helper) {
        let mut current = lock(&self.helper);
        self.helper_thread.store(helper.thread, Ordering::Relaxed);
        self.helper_here.store(helper.thread_here, Ordering::Relaxed);
        *current = Some(helper);
        self.attached.store(true, Ordering::Relaxed);
        // At each moment it has a helper, or is seen to wait for one.
        *lock(&self.helper_ended) = None;
    }

    /// Gives up a helper that is gone.
    pub(crate) fn drop_helper(&self, helper: &mut Option<Helper>) {
        self.attached.store(false, Ordering::Relaxed);
        self.helper_thread.store(0, Ordering::Relaxed);
        self.helper_here.store(0, Ordering::Relaxed);
        *helper = None;
    }

    /// Records that its helper has ended. A thread that is using it finds out; otherwise it is
    /// dropped.
    pub(crate) fn unattached(&self) {
        // In this order: otherwise it would be seen as a space that never had one.
        *lock(&self.helper_ended) = Some(Instant::now());
        self.attached.store(false, Ordering::Release);
        // The helper's number was the space's while the helper lived.
        let tasks = lock(&self.tasks).clone();
        if let Some(task) = tasks.into_iter().find(|&task| proc::lives(task)) {
            self.set_pid(task);
        }
        if let Ok(mut helper) = self.helper.try_lock() {
            self.drop_helper(&mut helper);
        }
    }

    /// Returns whether its helper has ended.
    pub(crate) fn has_lost_helper(&self) -> bool {
        lock(&self.helper_ended).is_some()
    }

    /// Returns for how long it has been without a helper, if it had one and may get another.
    pub(crate) fn without_helper_for(&self) -> Option<Duration> {
        let may = !self.is_dead() && !self.refused.load(Ordering::Relaxed);
        lock(&self.helper_ended).filter(|_| may).map(|since| since.elapsed())
    }

    /// Returns whether its helper is frozen at the moment.
    pub(crate) fn is_frozen(&self) -> bool {
        let helper = self.helper_here.load(Ordering::Relaxed);
        helper != 0 && proc::is_frozen(helper)
    }

    /// Returns whether pages can leave.
    pub(crate) fn is_attached(&self) -> bool {
        // Pairs with the Release of `unattached`: a space seen without a helper is seen to wait.
        self.attached.load(Ordering::Acquire) && !self.is_dead()
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// Returns how many pages are present outside of closed ranges.
    pub(crate) fn open(&self) -> usize {
        lock(&self.charged).open
    }

    /// Returns how many present pages stay open although there is no room: of private mappings of
    /// files, or of small ones.
    pub(crate) fn left_open(&self) -> usize {
        let left = lock(&self.survey).map_or(0, |survey| survey.left);
        left.min(self.open())
    }

    /// Returns how many pages were seen in the address space last, without those that left since.
    pub(crate) fn last_seen(&self) -> usize {
        let charged = lock(&self.charged);
        charged.seen.min(charged.present.present + charged.open)
    }

    /// Records how many pages were seen in the address space.
    pub(crate) fn seen(&self, pages: usize) {
        let mut charged = lock(&self.charged);
        charged.seen = pages;
        let open = pages.saturating_sub(charged.present.present);
        self.budget.change(charged.open, open);
        charged.open = open;
    }

    /// Records that pages that were open are closed now.
    pub(crate) fn closed(&self, pages: usize) {
        let mut charged = lock(&self.charged);
        let open = charged.open.saturating_sub(pages);
        self.budget.change(charged.open, open);
        charged.open = open;
    }

    fn set_present(&self, now: Chargeable) {
        let mut charged = lock(&self.charged);
        self.budget.change(charged.present.present, now.present);
        self.budget.change_copies(charged.present.copied, now.copied);
        charged.present = now;
    }

    /// Returns how many pages of closed ranges could not be moved.
    pub(crate) fn fixed(&self) -> usize {
        lock(&self.charged).present.fixed
    }

    /// Returns whether there are pages in closed ranges: without any, none can leave.
    pub(crate) fn has_present(&self) -> bool {
        lock(&self.charged).present.present > 0
    }

    /// Returns how many pages of closed ranges are about to be discarded.
    pub(crate) fn doomed(&self) -> usize {
        lock(&self.charged).present.doomed
    }

    /// Returns how many of these cannot leave later either.
    pub(crate) fn stays(&self) -> usize {
        if self.leaves_late.load(Ordering::Relaxed) { 0 } else { self.fixed() }
    }

    /// Returns how many present pages cannot leave: those that stay open, and those that cannot be
    /// moved; less those that are also counted elsewhere. A page that forks share becomes a space's
    /// own when it leaves, so most pages that are still shared cannot leave.
    pub(crate) fn immovable(&self) -> usize {
        let closes = !self.refused.load(Ordering::Relaxed) && lock(&self.survey).is_none();
        let stays = self.stays();
        let charged = lock(&self.charged);
        let there = stays + if closes { 0 } else { charged.open };
        there.saturating_sub(self.credit())
    }

    /// Returns whether it was forked, or forked from, and may share pages. Does not wait.
    pub(crate) fn shares(&self) -> bool {
        // A thread that has the lock measures what it shares.
        self.sharing.try_lock().map_or(true, |sharing| sharing.is_some())
    }

    /// Returns how many pages are charged here, shared ones included.
    pub(crate) fn charged(&self) -> usize {
        let charged = lock(&self.charged);
        charged.present.present + charged.open
    }

    /// Sets how many of these pages are also counted elsewhere.
    pub(crate) fn set_credit(&self, pages: usize) {
        let was = self.credit.swap(pages, Ordering::Relaxed);
        self.budget.change_credit(was, pages);
    }

    /// Returns how many are.
    pub(crate) fn credit(&self) -> usize {
        self.credit.load(Ordering::Relaxed)
    }

    /// Returns whether a thread, by its number in the namespace of the program, is the helper.
    pub(crate) fn is_helper(&self, thread: i32) -> bool {
        thread != 0 && thread == self.helper_thread.load(Ordering::Relaxed)
    }

    /// Marks it as gone.
    pub(crate) fn die(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }
}

/// The core of a space, locked.
pub(crate) struct Held<'a> {
    managed: &'a Managed,
    space: MutexGuard<'a, Space>,
    /// The charges, as of the last release.
    charged: Chargeable,
}

impl<'a> Held<'a> {
    fn new(managed: &'a Managed, mut space: MutexGuard<'a, Space>) -> Self {
        let charged = Chargeable::of(&mut space);
        space.set_now(managed.budget.now());
        Self { managed, space, charged }
    }
}

impl std::ops::Deref for Held<'_> {
    type Target = Space;

    fn deref(&self) -> &Space {
        &self.space
    }
}

impl std::ops::DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Space {
        &mut self.space
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let now = Chargeable::of(&mut self.space);
        if now != self.charged {
            self.managed.set_present(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_of_a_crowd_are_surveyed_when_they_grow_and_more_rarely() {
        let second = Duration::from_secs(1);
        let Some(at) = Instant::now().checked_sub(second) else { return };
        let survey = Survey { at, took: second / 1000, left: 10, rest: 10 };
        assert!(survey.is_due(10, 1) && survey.is_due(11, 16 * 50));
        assert!(!survey.is_due(10, 16 * 2) && !survey.is_due(11, 16 * 200));
    }

    #[test]
    fn what_forks_share_counts_once_in_what_cannot_leave() {
        let budget = Arc::new(Budget::new(64 << 20, true));
        let managed = Managed::new(SpaceId(1), 0, &budget);
        managed.seen(1000);
        assert_eq!(managed.immovable(), 0, "it is not known what can be closed");
        managed.refused.store(true, Ordering::Relaxed);
        assert_eq!(managed.immovable(), 1000);
        managed.set_credit(900);
        assert_eq!((managed.immovable(), budget.charge()), (100, 100));
        managed.set_credit(2000);
        assert_eq!(managed.immovable(), 0);
    }
}
