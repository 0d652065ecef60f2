//! Faults of a guest, their outcomes, and counts of both.

use rustix::io::Errno;
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

/// Totals of a guest, in pages of its own size, except `copied`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Faults that were answered.
    pub(crate) faults: u64,
    /// Pages of 4 KiB that were copied.
    pub(crate) copied: u64,
    /// Zeros that were mapped.
    pub(crate) zeroed: u64,
    /// Of both, pages that nobody had asked for yet.
    pub(crate) beforehand: u64,
    /// Messages of discards.
    pub(crate) discards: u64,
    /// Times that a call had to wait for a discard.
    pub(crate) retries: u64,
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
