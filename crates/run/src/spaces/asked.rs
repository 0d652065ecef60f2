//! Work that threads of the memory side leave to each other.

use std::sync::Arc;
use std::time::Instant;

use crate::core::ranges::{PageNo, Pages};
use crate::link::{Attached, SpaceId, Ticket};
use crate::spaces::managed::Managed;

/// A page that a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    pub page: PageNo,
    /// The thread, by the number that it has in its own namespace.
    pub thread: i32,
    /// The thread is about to write to it.
    pub writes: bool,
    /// When the message was read.
    pub since: Instant,
}

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

/// Pages that a program says it will need. No thread waits for them.
pub(crate) struct Needed {
    /// By its number: what keeps the access of a space that is gone would make its end wait.
    pub space: SpaceId,
    /// The pages that are still to be tried.
    pub pages: Pages,
    /// How many of these may still come, or be spared if they are there.
    pub left: usize,
    /// How often in a row that was refused.
    pub refused: u32,
}

/// Work, and the thread that is held until it is done.
pub(crate) enum Work {
    /// A space was attached: its helper is taken over, which waits for it, and memory is closed if
    /// there is too much before its thread continues. A new space has its access already.
    Attached { managed: Arc<Managed>, attached: Box<Attached>, is_new: bool, ticket: Ticket },
    /// See [`crate::link::Request`].
    Open(Arc<Managed>, Pages, Ticket),
    /// Same as above; the length in pages.
    Level { managed: Arc<Managed>, pages: Pages, len: usize, ticket: Ticket },
    /// Same as above.
    Moved { managed: Arc<Managed>, from: Pages, to: Option<Pages>, ticket: Ticket },
    /// Same as above.
    Mapped(Arc<Managed>, Pages, Ticket),
    /// As above; the last page of the heap.
    Grown(Arc<Managed>, PageNo, Ticket),
    /// As above; addresses of the pages.
    Hold(Arc<Managed>, Option<Vec<usize>>, Ticket),
    /// As above; the page of the child's number.
    Fork(Arc<Managed>, Option<PageNo>, Ticket),
    /// Brings in the pages that the kernel needs when a thread ends: these, and its robust mutexes.
    End { managed: Arc<Managed>, pages: Vec<PageNo>, robust: Option<usize>, ticket: Ticket },
    /// A child of a fork that was held.
    Born { parent: Arc<Managed>, child: Arc<Managed>, attached: Box<Attached>, ticket: Ticket },
    /// The fork has failed: there is no child.
    Unborn(Arc<Managed>),
    /// A space is gone.
    Gone(Arc<Managed>),
}
