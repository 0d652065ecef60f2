//! The state that the threads of the memory side share.
//!
//! Locks, in the order in which they are taken. No thread takes an earlier one while it holds a
//! later one, nor two of the same kind, except a child's while the child is made:
//!
//! 1. a space's helper (`Managed::helper`): held by the evictor while the helper works
//! 2. a space's core (`Managed::lock`): held while messages are read, pages are filled in and
//!    moved out. Never across compression or loading (but for the few pages of the swap
//!    cache at a fork), and never while a call is made that may need a page of the space.
//! 3. a space's unclaimed children: held while the message of a fork is read and the child entered
//!    in the table. The child's core, which no other thread knows yet, is locked under it, and
//!    stays locked until the child has its pages.
//! 4. leaves: the list of spaces (and under it their table), keys, swap cache, what is charged for
//!    a space, kept pages, the queues of the evictor, the watcher and the prefetcher, and which
//!    process is ended for want of room
//!
//! Which threads wait for which:
//!
//! - The tracer never waits: it takes only 3 and 4, and the lock of a core if it is free. Work that
//!   needs more is left to the watcher or the evictor, and the thread stays stopped meanwhile.
//! - The evictor waits for the helper under the lock of a core: the helper then makes calls that
//!   touch only its own pages. It waits without that lock when the helper makes shared pages the
//!   space's own, which may need readers. If a user stops a helper, the tracer continues it.
//! - Compressing helper threads wait for the lock of a core; the evictor waits for them a moment at
//!   a time when nothing else is left to free.
//! - Readers and the watcher wait for the lock of a core. A fault that cannot be answered now is
//!   left to the evictor (no room) or the watcher (a change in progress).
//! - The prefetcher waits for the lock of a core, and now and then for a moment; no thread waits
//!   for it.
//! - The program waits for readers, evictor and watcher.
//!
//! So every chain ends at the tracer or at the helper. A space that is lost (its helper died) is
//! dead: no thread waits for anything there.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use zfold_figures::Histogram;
use zfold_pool::sound;
use zfold_store::{Digests, LoadError, Store};

use crate::cold::copies::Copies;
use crate::cold::keys::Keys;
use crate::cold::swap_cache::SwapCache;
use crate::core::pages::{Key, Page};
use crate::core::ranges::{PageNo, Pages};
use crate::figures::Counters;
use crate::link::{SpaceId, Ticket, Tracing};
use crate::options::Unmanaged;
use crate::spaces::asked::{Needed, PageOut, Pending, Task, Work};
use crate::spaces::budget::Budget;
use crate::spaces::kinds::Kinds;
use crate::spaces::managed::{Managed, lock};
use crate::spaces::polls::Polls;
use crate::spaces::refusals::Refusals;
use crate::spaces::signal::Signal;
use crate::spaces::starving::Starving;
use crate::sys::proc;
use zfold_uffd::page::pages_in;

/// How long a space that has lost pages may take to end by itself.
const LOST: Duration = Duration::from_secs(2);

/// How long a helper may take to end after it was killed.
const ENDING: Duration = Duration::from_secs(5);

/// The parts of the limit that the swap cache takes: where there is room, and where it is tight.
/// What is taken back from it are pages that were picked too early, and many were because it took
/// the room.
const SWAP_CACHE: [usize; 2] = [16, 48];

/// Most spaces in which pages that forks share are looked for.
pub(crate) const RELATIVES: usize = 64;

/// A space that has lost pages.
#[derive(Debug)]
pub(crate) struct Lost {
    space: SpaceId,
    since: Instant,
    /// How that was noticed.
    error: String,
}

/// The memory side without its threads.
pub(crate) struct Shared {
    pub budget: Arc<Budget>,
    pub store: Arc<Store>,
    /// What was stored under each key.
    pub digests: Digests,
    pub tracing: Arc<dyn Tracing>,
    pub counters: Counters,
    /// How long faults took, from the message to the page, in nanoseconds.
    pub latency: Histogram,
    pub spaces: RwLock<BTreeMap<SpaceId, Arc<Managed>>>,
    /// The same as a list, as long as it does not change: thousands are not copied at each step.
    pub listed: Mutex<Option<Arc<[Arc<Managed>]>>>,
    pub ids: AtomicU64,
    pub keys: Mutex<Keys>,
    pub copies: Copies,
    pub swap_cache: Mutex<SwapCache>,
    /// What this process had besides pages of the program when it was looked at last.
    pub own_bytes: AtomicU64,
    /// Faults that wait for room.
    pub pending: Mutex<VecDeque<Pending>>,
    /// Faults that wait for a change to end.
    pub retries: Mutex<Vec<Pending>>,
    pub page_outs: Mutex<VecDeque<PageOut>>,
    /// Pages that programs say they will need.
    pub needed: Mutex<VecDeque<Needed>>,
    /// Requests to the watcher.
    pub work: Mutex<VecDeque<Work>>,
    /// Spaces that have lost pages; they should soon be gone.
    pub lost: Mutex<Vec<Lost>>,
    /// Pages that found no room, and the process that is ended for that.
    pub starving: Mutex<Starving>,
    /// It is the whole tree that is ended then.
    pub whole: bool,
    /// Processes that could not be attached.
    pub unmanaged: Mutex<Refusals>,
    /// Memory that cannot leave.
    pub kinds: Mutex<Kinds>,
    pub polls: Polls,
    /// Calls the evictor.
    pub evictor: Signal,
    /// Calls the watcher.
    pub watcher: Signal,
    /// Calls the prefetcher.
    pub prefetcher: Signal,
    /// Ends the search for untraced processes.
    pub strangers: Signal,
    /// Wakes one of the compressing helper threads.
    pub compressors: Signal,
    /// Memory that may be closed; all memory, except in tests that are their own program.
    pub window: Pages,
    /// Whether open memory is measured: not for tests that are their own program.
    pub looks: bool,
}

impl Shared {
    /// Returns a new space that is not in the table.
    pub(crate) fn new_space(&self, pid: i32) -> Arc<Managed> {
        let id = SpaceId(self.ids.fetch_add(1, Ordering::Relaxed) + 1);
        Arc::new(Managed::new(id, pid, &self.budget))
    }

    /// Adds a space to the table, and has its messages read if there may be any.
    pub(crate) fn insert(&self, managed: Arc<Managed>) {
        self.counters.processes_total.add(1);
        let mut spaces = sound(self.spaces.write());
        spaces.insert(managed.id, Arc::clone(&managed));
        drop(spaces);
        *lock(&self.listed) = None;
        if managed.access().is_some() {
            self.polls.add(&managed);
        }
    }

    /// Returns a space.
    pub(crate) fn find(&self, id: SpaceId) -> Option<Arc<Managed>> {
        let spaces = sound(self.spaces.read());
        spaces.get(&id).cloned()
    }

    /// Takes a space out of the table.
    pub(crate) fn take(&self, id: SpaceId) -> Option<Arc<Managed>> {
        let mut spaces = sound(self.spaces.write());
        let taken = spaces.remove(&id);
        drop(spaces);
        *lock(&self.listed) = None;
        taken
    }

    /// Returns all spaces in the order of their numbers. While a caller has the list, no space of
    /// it gives up its descriptors.
    pub(crate) fn all(&self) -> Arc<[Arc<Managed>]> {
        let list = || {
            let spaces = sound(self.spaces.read());
            spaces.values().cloned().collect()
        };
        // A change is made before the list is dropped: one that is made now is no change of it.
        Arc::clone(lock(&self.listed).get_or_insert_with(list))
    }

    /// Returns the other spaces that share pages since a fork, of any space, and that `is_meant`
    /// accepts, in the order of their numbers; [`RELATIVES`] of them at most.
    pub(crate) fn sharing_with(
        &self,
        id: SpaceId,
        is_meant: impl Fn(&Managed) -> bool,
    ) -> Vec<Arc<Managed>> {
        let shares = |other: &&Arc<Managed>| other.id != id && is_meant(other) && other.shares();
        let spaces = sound(self.spaces.read());
        spaces.values().filter(shares).take(RELATIVES).cloned().collect()
    }

    /// Returns how many pages the swap cache may hold without pressure.
    pub(crate) fn swap_cache_max(&self) -> usize {
        let part = SWAP_CACHE[usize::from(self.budget.is_tight())];
        (self.budget.limit() / part).min(pages_in(4 << 20))
    }

    /// Wakes the evictor if the charge is too high.
    pub(crate) fn call_evictor_if_high(&self) {
        if self.budget.is_high() {
            self.evictor.call();
        }
    }

    /// Queues work for the watcher.
    pub(crate) fn ask(&self, managed: Arc<Managed>, task: Task, ticket: Option<Ticket>) {
        lock(&self.work).push_back(Work { managed, task, ticket });
        self.watcher.call();
    }

    /// Releases keys and slots named by states that were taken out of a space (space/S3).
    ///
    /// # Cost
    /// A free in the store for each key that no other space names.
    pub(crate) fn release(&self, pages: &[(PageNo, Page)]) {
        let keys = pages.iter().filter_map(|(_, state)| match state {
            Page::Stored(key) => Some(*key),
            _ => None,
        });
        self.release_keys(keys);
    }

    /// Releases keys.
    pub(crate) fn release_keys(&self, keys: impl Iterator<Item = Key>) {
        let last: Vec<Key> = {
            let mut of = None;
            keys.filter(|&key| of.get_or_insert_with(|| lock(&self.keys)).release(key)).collect()
        };
        for &key in &last {
            self.store.invalidate(u64::from(key));
        }
        if !last.is_empty() {
            let mut keys = lock(&self.keys);
            last.into_iter().for_each(|key| keys.put_back(key));
        }
    }

    /// Returns the remedy for a store that takes no more pages.
    pub(crate) fn remedy(&self) -> &'static str {
        let stats = self.store.stats();
        let limit = self.store.tunables().limit_bytes.unwrap_or(u64::MAX);
        match (stats.backing_bytes, stats.backing_used_bytes) {
            // Each page that has left takes a few bytes here.
            (1.., _) if stats.metadata_bytes > limit / 2 => {
                "buffers and tables of pages that have left take most of it: raise --store-limit"
            }
            (0, _) if self.budget.is_together() => {
                "what the program has does not fit into the memory that there is: give the \
                 container more, or give --backing a place for what does not fit"
            }
            (0, _) => {
                "raise --limit or --store-limit, or give --backing a place for what does not fit"
            }
            // A run of free units may be too short for a batch.
            (all, used) if used >= all - all / 16 => {
                "the backing is full, too: raise --backing-size or --store-limit"
            }
            _ => "no page could go to the backing: raise --store-limit, or repair the backing",
        }
    }

    /// Records why a space cannot be attached.
    pub(crate) fn cannot_attach(&self, managed: &Managed, reason: String) {
        managed.refused.store(true, Ordering::Relaxed);
        // A process that has ended meanwhile has nothing to manage.
        if lock(&managed.tasks).iter().any(|&task| proc::lives(task)) {
            let pid = managed.pid();
            let process = Unmanaged { pid, program: proc::name(pid), reason };
            lock(&self.unmanaged).add(process);
        }
    }

    /// A page that must leave found no room: a process is ended, or the tree. It was tried in this
    /// turn ([`Starving::turn`]).
    pub(crate) fn starve(&self, turn: u64, why: String) {
        if self.whole {
            return self.tracing.end(why);
        }
        lock(&self.starving).want(turn, why);
        self.evictor.call();
    }

    /// Ends the tree because a page cannot be loaded.
    pub(crate) fn end_load(&self, error: &LoadError) {
        self.tracing.end(format!("cannot restore a page of the program: {error}"));
    }

    /// Ends a helper that has failed or is late, unless it has ended. Returns whether it has ended,
    /// after which it makes no more calls.
    pub(crate) fn end_helper(&self, managed: &Managed, error: &io::Error) -> bool {
        self.tracing.end_helper(managed.id);
        // It closes its socket after its last call.
        if error.kind() != io::ErrorKind::TimedOut {
            return true;
        }
        let began = Instant::now();
        while !managed.has_lost_helper() && began.elapsed() < ENDING {
            std::thread::sleep(Duration::from_millis(1));
        }
        managed.has_lost_helper()
    }

    /// Records that a space has lost pages. Normally the space is gone, and the tracer is about to
    /// report that; see [`check_lost`](Self::check_lost). Until then no page is filled in there.
    pub(crate) fn lost(&self, managed: &Managed, error: &io::Error) {
        managed.die();
        lock(&self.lost).push(Lost {
            space: managed.id,
            since: Instant::now(),
            error: error.to_string(),
        });
    }

    /// Ends a space that has lost pages and continues to run. On a busy machine the report of its
    /// end may take long.
    pub(crate) fn check_lost(&self) {
        let mut lost = lock(&self.lost);
        lost.retain(|lost| self.find(lost.space).is_some());
        let goes_on = |id: SpaceId| {
            let tasks = self.find(id).map(|managed| lock(&managed.tasks).clone());
            tasks.into_iter().flatten().any(proc::lives)
        };
        lost.retain(|Lost { space, since, error }| {
            let ends = since.elapsed() > LOST && goes_on(*space);
            if ends {
                let message = format!("it lost pages that were on their way out: {error}");
                self.tracing.end_space(*space, message);
            }
            !ends
        });
    }
}
