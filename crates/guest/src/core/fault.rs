//! Faults of a guest, their outcomes, and figures of both.

use rustix::io::Errno;
use zfold_figures::{FIELD, Figures as _, View, figures, metric, state};
use zfold_store::LoadError;

/// When to look after a guest again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// At once: there is more to do.
    Now,
    /// In a moment, or at the next message: a discard is under way.
    Soon,
    /// In a second, or at the next message: a fault cannot be answered.
    Later,
    /// At the next message.
    Idle,
    /// Never: it is gone.
    Gone,
}

/// The title of the table of a server and its guests.
pub const TABLE: &str = "guests";

figures! {
    /// Pages that a guest, or all guests of a server, got.
    #[non_exhaustive]
    pub struct Given;

    total faults_total: Count, "faults that were answered",
        [state(TABLE).row("faults"), metric("guest_faults_total"), View::Rate];
    total copied_pages_total: Count, "pages of 4 KiB put into guests",
        [state(TABLE).row("copied"), metric("guest_copied_pages_total")];
    total zero_pages_total: Count, "pages of zeros, which take no memory",
        [state(TABLE).row("zeros"), metric("guest_zero_pages_total")];
    total beforehand_pages_total: Count, "of both, put in before the guest asked for them",
        [state(TABLE).row("beforehand"), metric("guest_beforehand_pages_total")];
    total discards_total: Count, "messages about memory that guests discarded",
        [FIELD, metric("guest_discards_total")];
    total retries_total: Count, "calls that the kernel refused while memory was being discarded",
        [FIELD, metric("guest_retries_total")];
    total strays_total: Count, "faults outside of the named regions, which get no answer",
        [FIELD, metric("guest_strays_total")];
}

impl Given {
    /// Adds another guest's figures.
    pub(crate) fn add(&mut self, other: &Self) {
        for figure in Self::ALL {
            (figure.set)(self, (figure.of)(self) + (figure.of)(other));
        }
    }
}

/// Why a fault is not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// It has just come.
    New,
    /// A discard is under way.
    Discard,
    /// The page cannot be read.
    Load(LoadError),
    /// The kernel refuses it.
    Kernel(Errno),
}

/// A fault that waits.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(super) unit: u64,
    /// Bytes of the unit that were put in.
    pub(super) done: usize,
    /// A thread waits; otherwise this is the rest of a unit of which a part was put in.
    pub(super) is_asked: bool,
    /// When it was read, in nanoseconds.
    pub(crate) since: u64,
    pub(crate) why: Why,
    /// Where it is, and its page of the image.
    pub(crate) at: usize,
    pub(crate) page: u64,
}

/// What became of a fault.
pub(super) enum Put {
    Done,
    Waits(usize, Why),
    Gone,
}

/// What became of pages that nobody asked for.
pub(super) enum Filled {
    /// The rest begins there.
    To(u64),
    Again(u64),
    Gone,
}
