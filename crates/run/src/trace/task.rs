//! The tracer's state of threads and address spaces.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::time::Instant;

use super::areas::Areas;
use super::helper::Helper;
use super::waits::Softened;
use crate::link::{SpaceId, Ticket};
use crate::sys::arch::{self, Seen};
use crate::sys::proc;
use crate::sys::ptrace::{self, Event};

/// Why a thread was let into a system call with a stop after it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waits {
    /// For nothing.
    #[default]
    Nothing,
    /// To check a large mapping of `len` bytes. `flags`: the original flags of the call, if others
    /// were substituted.
    Mapped { len: usize, flags: Option<u64> },
    /// To check the growth of the heap.
    Grown,
    /// To report that the range opened for the call is no longer needed.
    Opened,
    /// To check a range that was moved or resized, from `old` bytes at `from` to `len` bytes.
    Moved { from: usize, old: usize, len: usize },
    /// To see the child of a fork.
    Fork(Birth),
}

/// How the child of a fork gets the pages that are away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Birth {
    /// The kernel reports the child, which shares them with its parent.
    Told,
    /// The kernel does not report it: the memory side waits for the child, and gives them to it
    /// through its helper.
    Held,
    /// The child can have no helper. All pages came back before the fork, and it is not managed.
    Alone,
}

/// How a held thread continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Park {
    /// It runs.
    Run,
    /// It makes its call, and stops when that has returned.
    IntoCall,
    /// The page that its call points to has come in: the call is decoded again.
    Again,
    /// It stays as it is, with its whole process.
    Listen,
    /// It ends.
    End,
}

impl Park {
    /// Returns how a thread continues from a stop.
    pub(crate) fn at(stop: Event) -> Self {
        if stop.is_group_stop() { Self::Listen } else { Self::Run }
    }
}

/// A thread of the program.
#[derive(Debug, Default)]
pub(crate) struct Task {
    /// Its address space; `None` before the first exec.
    pub space: Option<SpaceId>,
    /// Why it is in a call.
    pub waits: Waits,
    /// The turn of the ticket by which it is held, and how it continues once it is stopped.
    pub held: Option<u64>,
    /// Same as above.
    pub parked: Option<Park>,
    /// Another thread that is held by the same ticket.
    pub related: Option<i32>,
    /// Where the kernel writes when it ends.
    pub tid_at: Option<usize>,
    /// It is a child of a held fork, of this parent and its space, and has not stopped yet.
    pub birth: Option<(i32, SpaceId)>,
    /// Why the child that it is about to have will not be managed ([`Birth::Alone`]).
    pub why_alone: String,
    /// The arguments of the call in which it makes a child, if they could be read before.
    pub areas: Option<Areas>,
    /// How often a page that its call points to was fetched before the call.
    pub fetched: u8,
    /// It is in a call that would notice a helper of its space.
    pub aside: bool,
    /// It is about to be: the stop will be repeated.
    pub stays_aside: bool,
    /// It runs under the filter.
    pub filtered: bool,
    /// It has stopped on its way to its end: only [`super::ends`] lets it continue.
    pub ends: bool,
    /// It ran before it was traced, and was not met yet ([`super::meet`]).
    pub unmet: bool,
    /// It is in a wait that was interrupted and restarted.
    pub softened: Option<Softened>,
    /// The call in which it was before it was asked to stop, where a stop does not show that.
    pub seen: Option<Seen>,
}

impl Task {
    /// Asks a thread that may be running to stop.
    ///
    /// # Errors
    /// It is gone.
    pub(crate) fn interrupt(&mut self, tid: i32) -> io::Result<()> {
        if arch::REWINDS && self.parked.is_none() {
            match proc::call(tid) {
                // It has stopped meanwhile: what was seen before the stop remains valid.
                Some(seen) if seen.number == u64::MAX => {}
                seen => self.seen = seen,
            }
        }
        ptrace::interrupt(tid)
    }
}

/// An address space.
#[derive(Debug, Default)]
pub(crate) struct Space {
    /// Threads in it.
    pub tasks: usize,
    /// Of these, threads that have stopped on their way to their ends.
    pub ending: usize,
    /// The process that makes calls in it, once it is attached.
    pub helper: Option<Helper>,
    /// Helpers that have ended and that their parents have not reaped.
    pub ended: Vec<Helper>,
    /// Threads in calls that would notice a helper.
    pub aside: usize,
    /// Signals that once had a handler or were ignored, one bit each.
    pub handled: u64,
    /// Helpers that have ended unasked, and until when there is no other.
    pub deaths: u32,
    /// Same as above.
    pub rests: Option<Instant>,
    /// It cannot be attached, and that was reported.
    pub refused: bool,
    /// Its processes are ended for want of memory.
    pub victim: bool,
    /// The thread that moves a mapping or forks, and those that wait to do that (T5).
    pub changing: Option<i32>,
    /// As above; each is stopped before its call.
    pub waiting: VecDeque<i32>,
    /// A thread of another process that has it, too, so that it cannot be attached, and since when.
    pub shared: Option<(i32, Instant)>,
    /// Threads in it that were not met yet (T9).
    pub unmet: usize,
    /// All its threads are to stand still.
    pub still: Option<Still>,
}

/// A space that is to stand still: it does when each of its threads is held for that, and for
/// nothing else (T6).
#[derive(Debug)]
pub(crate) struct Still {
    /// The turn in which that was asked.
    pub turn: u64,
    /// The tickets by which threads are held for it.
    pub held: HashSet<Ticket>,
}

/// The address spaces of the tree.
#[derive(Debug, Default)]
pub(crate) struct Spaces {
    spaces: HashMap<SpaceId, Space>,
}

impl Spaces {
    /// A new one with one thread.
    pub(crate) fn add(&mut self, id: SpaceId) {
        self.spaces.insert(id, Space { tasks: 1, ..Space::default() });
    }

    /// One more thread is in it.
    pub(crate) fn join(&mut self, id: SpaceId) {
        if let Some(space) = self.spaces.get_mut(&id) {
            space.tasks += 1;
        }
    }

    /// A thread has left it. Returns the space if that was the last.
    pub(crate) fn leave(&mut self, id: SpaceId) -> Option<Space> {
        let space = self.spaces.get_mut(&id)?;
        space.tasks -= 1;
        if space.tasks > 0 {
            return None;
        }
        self.spaces.remove(&id)
    }

    /// One that has threads.
    pub(crate) fn get(&self, id: SpaceId) -> Option<&Space> {
        self.spaces.get(&id)
    }

    /// One that has threads.
    pub(crate) fn get_mut(&mut self, id: SpaceId) -> Option<&mut Space> {
        self.spaces.get_mut(&id)
    }

    /// Its helper, if there is only one thread left.
    pub(crate) fn last_helper(&self, id: SpaceId) -> Option<Helper> {
        self.spaces.get(&id).filter(|space| space.tasks == 1)?.helper
    }

    /// Whether it has no helper and may get one.
    pub(crate) fn attachable(&self, id: SpaceId) -> bool {
        self.spaces.get(&id).is_some_and(|space| {
            let rests = space.rests.is_some_and(|until| Instant::now() < until);
            let quiet = space.aside == 0 && space.unmet == 0 && !rests;
            space.helper.is_none() && !space.refused && quiet
        })
    }
}
