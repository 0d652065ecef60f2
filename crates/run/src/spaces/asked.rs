//! Work that threads of the memory side leave to each other, and the boxes that it lies in.

use std::sync::Arc;

use crate::core::ranges::{PageNo, Pages};
use crate::link::{Attached, Request, Ticket};
use crate::spaces::mailbox::Fault;
use crate::spaces::managed::Managed;

/// A fault that is answered later.
pub(crate) struct Pending {
    pub managed: Arc<Managed>,
    pub fault: Fault,
}

/// Pages that should leave now. The thread that asked continues when they have.
pub(crate) struct PageOut {
    pub managed: Arc<Managed>,
    /// The pages that are still to be tried.
    pub pages: Pages,
    /// The mappings there are closed.
    pub closed: bool,
    pub ticket: Ticket,
}

/// Work for the watcher, in a space; the thread of `ticket` is held until it is done.
pub(crate) struct Work {
    pub managed: Arc<Managed>,
    pub task: Task,
    pub ticket: Option<Ticket>,
}

/// What is to be done.
pub(crate) enum Task {
    /// What the tracer asks for.
    Request(Request),
    /// The space was attached: its helper is taken over, which waits for it, and memory is closed
    /// if there is too much. `is_new`: it has its access already.
    Attached { attached: Box<Attached>, is_new: bool },
    /// A thread ends, for which these pages must be present; and those of its robust mutexes, whose
    /// list begins at `robust`.
    End { pages: Vec<PageNo>, robust: Option<usize> },
    /// A fork without a message has made this child, which is attached.
    Born { child: Arc<Managed>, attached: Box<Attached> },
    /// A fork without a message has failed.
    Unborn,
    /// The space is gone: what is kept for it is released.
    Gone,
}
