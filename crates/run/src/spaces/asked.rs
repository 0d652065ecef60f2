//! What threads of the memory side leave to each other.

use std::sync::Arc;
use std::time::Instant;

use crate::core::ranges::{PageNo, Pages};
use crate::link::{Attached, Ticket};
use crate::spaces::managed::Managed;

/// A page that a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    pub page: PageNo,
    /// The thread, by the number that it has in its own namespace.
    pub thread: i32,
    /// When the message was read.
    pub since: Instant,
}

/// A fault that is answered later.
pub(crate) struct Pending {
    pub managed: Arc<Managed>,
    pub fault: Fault,
}

/// Pages that should leave now. The thread that asked goes on when they have.
pub(crate) struct PageOut {
    pub managed: Arc<Managed>,
    /// Those that are still to be looked at.
    pub pages: Pages,
    /// The mappings there are closed.
    pub closed: bool,
    pub ticket: Ticket,
}

/// Something to be done, and the thread that is held until it is.
pub(crate) enum Work {
    /// A space was attached: its mover is made, which waits for the helper, and what is too much is
    /// closed before its thread goes on. A new one has its access already.
    Attached { managed: Arc<Managed>, attached: Box<Attached>, is_new: bool, ticket: Ticket },
    /// See [`crate::link::Request`].
    Open(Arc<Managed>, Pages, Ticket),
    /// As above.
    Level(Arc<Managed>, Pages, Ticket),
    /// As above.
    Moved { managed: Arc<Managed>, from: Pages, to: Option<Pages>, ticket: Ticket },
    /// As above.
    Mapped(Arc<Managed>, Pages, Ticket),
    /// As above; the last page of the heap.
    Grown(Arc<Managed>, PageNo, Ticket),
    /// As above; addresses of the pages.
    Hold(Arc<Managed>, Option<Vec<usize>>, Ticket),
    /// What the kernel needs of a thread that ends comes in: these pages, and its robust mutexes.
    End { managed: Arc<Managed>, pages: Vec<PageNo>, robust: Option<usize>, ticket: Ticket },
    /// A child of a fork that was held.
    Born { parent: Arc<Managed>, child: Arc<Managed>, attached: Box<Attached>, ticket: Ticket },
    /// There is none.
    Unborn(Arc<Managed>),
    /// A space is gone.
    Gone(Arc<Managed>),
}
