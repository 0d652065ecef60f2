//! One address space with its lock, its access and its charges.
//!
//! `space` is the *core*: the state of each page. The locks here are taken in the order of
//! [`shared`](crate::shared): `helper`, then `space`, then `unclaimed`; all others are leaves.
//! Changes under the core's lock are charged when it is released ([`Held`]), so charges agree with
//! the core whenever the lock is free; keys given up under it are released then. The atomics are
//! hints or single facts that may be read without any lock: `dead` stays set for a space.

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
use crate::permission::sees_accesses;
use crate::spaces::access::Access;
use crate::spaces::budget::Budget;
use crate::spaces::helper::Helper;
use crate::spaces::keys::{Stock, Unused};
use crate::spaces::mailbox::{Fault, Mailbox};
use crate::spaces::sharing::Sharing;
use crate::spaces::survey::Survey;
use crate::sys::proc;
use zfold_uffd::page::pages_in;

/// An address space.
pub(crate) struct Managed {
    pub id: SpaceId,
    /// A process that has it, as far as known; 0 for a child that the tracer has not seen.
    pid: AtomicI32,
    budget: Arc<Budget>,
    stock: Arc<Stock>,
    space: Mutex<Space>,
    /// Faults that were read, to be answered.
    pub faults: Mailbox<Fault>,
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

/// Bytes that may leave a space that is worth a helper, which takes about 50 KiB of the kernel's
/// memory: a stack, tables, a socket, a filter.
const WORTH: usize = 64 << 10;

#[derive(Debug, Default)]
struct Charged {
    /// Of closed ranges.
    present: Counts,
    open: usize,
    seen: usize,
}

/// Returns the charges of closed ranges: copies are those that no other space is charged for, and
/// pages that have left are charged to none.
fn charges(space: &mut Space) -> Counts {
    Counts { copied: space.own_copies(), cached: 0, stored: 0, ..space.counts() }
}

/// Takes a lock; a thread that panicked under it left the guarded state usable, or ended the tree.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    sound(mutex.lock())
}

impl Managed {
    /// Returns a space that is all open and has no charges yet.
    pub(crate) fn new(id: SpaceId, pid: i32, budget: &Arc<Budget>, stock: &Arc<Stock>) -> Self {
        let mut space = Space::default();
        if sees_accesses() {
            space.watch();
        }
        Self {
            id,
            pid: AtomicI32::new(pid),
            budget: Arc::clone(budget),
            stock: Arc::clone(stock),
            space: Mutex::new(space),
            faults: Mailbox::new(),
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

    /// Takes the lock of the core. When it is released, changes under it are charged, and keys that
    /// were given up are released.
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

    fn set_present(&self, now: Counts) {
        let mut charged = lock(&self.charged);
        self.budget.change(charged.present.present, now.present);
        self.budget.change_copies(charged.present.copied, now.copied);
        charged.present = now;
    }

    /// Returns how many pages of closed ranges could not be moved.
    pub(crate) fn fixed(&self) -> usize {
        lock(&self.charged).present.fixed
    }

    /// Returns how many pages there are in closed ranges: without any, none can leave.
    pub(crate) fn present(&self) -> usize {
        lock(&self.charged).present.present
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
        if !self.is_attached() && !self.is_worth_helper() {
            return self.charged().saturating_sub(self.credit());
        }
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

    /// Returns whether pages that leave this space may free more than a helper takes: its own, and
    /// its part of those that forks share. A space that was not forked may have anything.
    pub(crate) fn is_worth_helper(&self) -> bool {
        let charged = self.charged();
        let shared = self.credit().min(charged);
        let freed = charged - shared + shared / self.budget.sharers().max(1);
        freed >= pages_in(WORTH) || !self.shares()
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
    charged: Counts,
    /// Dropped after the lock: emptying them takes long.
    unused: Unused<'a>,
}

impl<'a> Held<'a> {
    fn new(managed: &'a Managed, mut space: MutexGuard<'a, Space>) -> Self {
        let charged = charges(&mut space);
        space.set_now(managed.budget.now());
        let unused = managed.stock.release(std::iter::empty());
        Self { managed, space, charged, unused }
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
        self.managed.budget.returned(self.space.take_returned().as_slice());
        let now = charges(&mut self.space);
        if now != self.charged {
            self.managed.set_present(now);
        }
        self.unused = self.managed.stock.release(self.space.take_free());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_forks_share_counts_once_in_what_cannot_leave() {
        let (budget, new) = crate::spaces::tests::spaces(64 << 20);
        let managed = new(1, 0);
        managed.seen(1000);
        assert_eq!(managed.immovable(), 0, "it is not known what can be closed");
        managed.refused.store(true, Ordering::Relaxed);
        assert_eq!(managed.immovable(), 1000);
        managed.set_credit(900);
        assert_eq!((managed.immovable(), budget.charge()), (100, 100));
        managed.set_credit(2000);
        assert_eq!(managed.immovable(), 0);
    }

    #[test]
    fn a_fork_is_worth_a_helper_by_its_own_pages_and_its_part_of_the_others() {
        let ((budget, new), now) = (crate::spaces::tests::spaces(64 << 20), Instant::now());
        let managed = new(1, 0);
        managed.seen(1024);
        managed.set_credit(1024);
        assert!(managed.is_worth_helper(), "it shares nothing");
        let share = || Sharing::new(&budget, now, None);
        *lock(&managed.sharing) = Some(share());
        let worth = pages_in(WORTH);
        let others: Vec<_> = (1..1024 / worth).map(|_| share()).collect();
        assert!(managed.is_worth_helper(), "it may free as much by its part");
        let more: Vec<_> = (0..1024).map(|_| share()).collect();
        assert!(!managed.is_worth_helper());
        assert_eq!(managed.immovable(), 0, "all of it counts elsewhere");
        managed.set_credit(1024 - worth);
        assert!(managed.is_worth_helper(), "by its own pages");
        managed.set_credit(1024 - worth / 2);
        assert!(!managed.is_worth_helper());
        assert_eq!(managed.immovable(), worth / 2);
        drop((others, more));
        assert!(managed.is_worth_helper() && budget.sharers() == 1);
    }
}
