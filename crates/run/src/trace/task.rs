//! What the tracer knows of threads and address spaces.

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

/// For what a thread was let into a system call.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waits {
    /// For nothing.
    #[default]
    Nothing,
    /// To look at a large mapping of so many bytes. `flags`: those that it was called with, if
    /// others were put in their place.
    Mapped { len: usize, flags: Option<u64> },
    /// To look at what the heap has grown by.
    Grown,
    /// To say that what was opened for it is needed no more.
    Opened,
    /// To look at what was moved or resized, from this many bytes at that address to so many.
    Moved { from: usize, old: usize, len: usize },
    /// To see the child of a fork.
    Fork(Birth),
}

/// How the child of a fork comes to the pages that are away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Birth {
    /// The kernel tells of it, and the child shares them with its parent.
    Told,
    /// The kernel does not: the memory side waits for the child, and gives them to its helper.
    Held,
    /// It can have no helper. All came back before the fork, and it is not managed.
    Alone,
}

/// How a thread that is held goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Park {
    /// It runs.
    Run,
    /// It makes its call, and stops when that has returned.
    IntoCall,
    /// What its call points to has been fetched: the call is looked at once more.
    Again,
    /// It stays as it is, with its whole process.
    Listen,
    /// It ends.
    End,
}

impl Park {
    /// Returns how a thread goes on from a stop.
    pub(crate) fn at(stop: Event) -> Self {
        if stop.is_group_stop() { Self::Listen } else { Self::Run }
    }
}

/// A thread of the program.
#[derive(Debug, Default)]
pub(crate) struct Task {
    /// Its address space; `None` before the first exec.
    pub space: Option<SpaceId>,
    /// What it is in a call for.
    pub waits: Waits,
    /// The turn of the ticket by which it is held, and how it goes on once it is stopped.
    pub held: Option<u64>,
    /// As above.
    pub parked: Option<Park>,
    /// Another thread that is held by the same ticket.
    pub related: Option<i32>,
    /// Where the kernel writes when it ends.
    pub tid_at: Option<usize>,
    /// It is a child of a held fork, of this parent and its space, and has not stopped yet.
    pub birth: Option<(i32, SpaceId)>,
    /// Why the child that it is about to have will not be managed ([`Birth::Alone`]).
    pub why_alone: String,
    /// What the call says in which it makes a child, if that could be read before.
    pub areas: Option<Areas>,
    /// How often what its call points to was to be fetched before that is made.
    pub fetched: u8,
    /// It is in a call that would notice a helper of its space.
    pub aside: bool,
    /// It is about to be: what it was stopped for comes once more.
    pub stays_aside: bool,
    /// It runs under the filter.
    pub filtered: bool,
    /// It has stopped on its way to its end: nobody but [`super::ends`] lets it go.
    pub ends: bool,
    /// It ran before it was traced, and was not looked at yet ([`super::meet`]).
    pub unmet: bool,
    /// It is in a wait that was interrupted and made anew.
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
                // It has stopped meanwhile: what was seen before that holds.
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
    /// Of these, such as have stopped on their way to their ends.
    pub ending: usize,
    /// The process that makes calls in it, once it is attached.
    pub helper: Option<Helper>,
    /// Helpers that have ended, of which their parents still know.
    pub ended: Vec<Helper>,
    /// Threads in calls that would notice a helper.
    pub aside: usize,
    /// Signals that once had a handler or were ignored, one bit each.
    pub handled: u64,
    /// Helpers that have ended unasked, and until when there is no other.
    pub deaths: u32,
    /// As above.
    pub rests: Option<Instant>,
    /// It cannot be attached, and that was told.
    pub refused: bool,
    /// The thread that moves a mapping or forks, and those that wait to do that (T5).
    pub changing: Option<i32>,
    /// As above; each is stopped before its call.
    pub waiting: VecDeque<i32>,
    /// A thread of another process that has it, too, so that it cannot be attached, and since when.
    pub shared: Option<(i32, Instant)>,
    /// Threads in it that were not looked at yet (T9).
    pub unmet: usize,
    /// All its threads are to stand still.
    pub still: Option<Still>,
}

/// A space that is to stand still: it does when each of its threads is held for that, and so for
/// nothing else (T6).
#[derive(Debug)]
pub(crate) struct Still {
    /// The turn in which that was asked.
    pub turn: u64,
    /// By these tickets threads are held for it.
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
