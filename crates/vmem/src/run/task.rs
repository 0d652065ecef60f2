//! What the tracer knows of threads and address spaces.

use std::collections::HashMap;

use crate::run::helper::Helper;
use crate::run::memory::{Change, SpaceId};

/// For what a thread was let into a system call.
#[derive(Debug, Default)]
pub(crate) enum Waits {
    /// For nothing.
    #[default]
    Nothing,
    /// To tell the memory side when the call has made these changes.
    Return(Change),
    /// The same of several.
    ReturnAll(Vec<Change>),
    /// To see the child of a fork, which is to be attached before it runs.
    Fork { attach: bool },
}

/// A thread of the program.
#[derive(Debug, Default)]
pub(crate) struct Task {
    /// Its address space; `None` before the first exec.
    pub space: Option<SpaceId>,
    /// What it is in a call for.
    pub waits: Waits,
    /// Of a forked child that has not been seen: its parent, which is held stopped, and whether the
    /// child is to be attached.
    pub birth: Option<Birth>,
    /// It stops before it ends, so that a helper can end first.
    pub tells_end: bool,
}

/// A fork whose child has not stopped yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Birth {
    /// The thread that forked; stopped until the child is there.
    pub parent: i32,
    /// Its address space.
    pub parent_space: SpaceId,
    /// Whether the child is attached before it runs.
    pub attach: bool,
}

/// An address space.
#[derive(Debug, Default)]
pub(crate) struct Space {
    /// Threads in it.
    pub tasks: usize,
    /// The process that makes calls in it, once it is attached.
    pub helper: Option<Helper>,
    /// It cannot be attached, and that was told.
    pub refused: bool,
}

/// The address spaces of the tree.
#[derive(Debug, Default)]
pub(crate) struct Spaces {
    made: u64,
    spaces: HashMap<SpaceId, Space>,
}

impl Spaces {
    /// A new one with one thread.
    pub(crate) fn add(&mut self) -> SpaceId {
        self.made += 1;
        let id = SpaceId(self.made);
        self.spaces.insert(id, Space { tasks: 1, ..Space::default() });
        id
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
    pub(crate) fn get_mut(&mut self, id: SpaceId) -> Option<&mut Space> {
        self.spaces.get_mut(&id)
    }

    /// Whether it has no helper and may get one.
    pub(crate) fn attachable(&self, id: SpaceId) -> bool {
        self.spaces.get(&id).is_some_and(|space| space.helper.is_none() && !space.refused)
    }
}
