//! The interface between the tracer and the memory side of the manager.
//!
//! The tracer (one thread) sees tasks and stops; the memory side sees address spaces, ranges and
//! pages, and learns of most changes from the kernel. Changes that the kernel does not report, or
//! reports too late, come from stops of the tracer: a thread that is about to make such a call, or
//! has made it, is held until the memory side lets it continue ([`Tracing::go_on`]).

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;

use zfold_uffd::Uffd;

/// Bytes of the largest batch that leaves a space: 128 pages of 4 KiB, for whose moves the lock of
/// the space is held about 60 microseconds.
pub(crate) const BATCH_BYTES: usize = 512 << 10;

/// An address space, from exec or fork to the exit or exec of the last task in it. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SpaceId(pub u64);

/// A thread that the tracer holds until the memory side has done something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Ticket {
    /// Its number.
    pub thread: i32,
    /// Increases with each ticket, so that a second [`Tracing::go_on`] for the same ticket does
    /// nothing.
    pub turn: u64,
}

/// A thread that is about to end: after that the kernel clears its number and walks its robust
/// mutexes, and does not wait for pages.
pub(crate) struct Ending<'a> {
    /// Where its number is.
    pub tid_at: Option<usize>,
    /// Where its list of robust mutexes begins.
    pub robust: Option<usize>,
    /// Reads a word of its memory; `None` if it is not there. Waits for no userfaultfd.
    pub word: &'a dyn Fn(usize) -> Option<usize>,
}

/// Work of the memory side while a thread is held. Ranges are whole pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    /// madvise(PAGEOUT): the pages should leave now.
    PageOut { range: Range<usize> },
    /// The range is about to become read-only or inaccessible, after which no page can leave it:
    /// its pages leave before, if there is not enough room for them.
    Protect { range: Range<usize> },
    /// Pages that left the range come back, and it stays open until the thread's call has returned
    /// ([`Request::Opened`]), and after that as long as its mappings require it.
    Open { range: Range<usize> },
    /// That call has returned.
    Opened,
    /// The range is about to be moved or resized, to so many bytes: it must be one mapping for the
    /// kernel, closed as a whole or not at all.
    Level { range: Range<usize>, len: usize },
    /// It was moved, to `to`, or that has failed: an added part is closed if the rest is, and left
    /// to the program if the rest is.
    Moved { from: Range<usize>, to: Option<Range<usize>> },
    /// The page at this address comes in, whoever serves it, because the thread's own call is about
    /// to read it.
    Fetch { address: usize },
    /// A large new mapping for which there may be no room.
    Mapped { range: Range<usize> },
    /// The heap ends here now, and may have grown by more than there is room for.
    Grown { end: usize },
    /// A fork without a message: pages at these addresses come in, because the kernel reads or
    /// writes them in the middle of it, and nothing leaves until [`Memory::born`] or
    /// [`Memory::unborn`]. `None`: all pages come in, for a child that is not managed.
    Hold { pages: Option<Vec<usize>> },
    /// A fork with a message: it waits for room, like one without. The page where the child finds
    /// its number comes in, and stays until [`Memory::forked`] or [`Memory::unborn`].
    Fork { number_at: Option<usize> },
}

/// New memory that is checked when it is made, since a program could exceed the limit with it
/// before the watcher looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Growth {
    /// Writable mappings of at least this many bytes.
    pub writable_bytes: u32,
    /// Mappings of at least this many bytes that cannot be written to any longer.
    pub mapping_bytes: u32,
    /// Also those that cannot be written to yet, and the heap.
    pub all: bool,
}

/// A system call that a helper makes inside an address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Call {
    /// Number of the call.
    pub number: u64,
    /// Its arguments.
    pub args: [u64; 6],
}

impl Call {
    /// Number of the userfaultfd in the helper.
    pub(crate) const NUMBER: u32 = 1;
    /// The descriptor as `ioctl` calls there name it. The kernel ignores the upper half; the filter
    /// does not.
    pub(crate) const UFFD: u64 = Self::NUMBER as u64 | (Self::MARK as u64) << 32;
    /// The upper half: the filter lets such calls pass. A program that does the same registers its
    /// own memory unseen.
    pub(crate) const MARK: u32 = 0x7a01;
    /// Most calls that go to the helper at once.
    pub(crate) const AT_ONCE: usize = 256;
}

/// Makes system calls inside one address space.
pub(crate) trait Inside: Send {
    /// Makes up to [`Call::AT_ONCE`] calls in order and writes what each returned (negative error
    /// numbers) to `results`.
    ///
    /// # Errors
    /// The helper is gone, with the address space.
    fn call(&mut self, calls: &[Call], results: &mut [i64]) -> io::Result<()>;

    /// Reads the helper's own memory.
    ///
    /// # Errors
    /// Same as [`call`](Self::call).
    fn read(&mut self, from: usize, into: &mut [u8]) -> io::Result<()>;

    /// Writes to it.
    ///
    /// # Errors
    /// Same as [`call`](Self::call).
    fn write(&mut self, to: usize, bytes: &[u8]) -> io::Result<()>;
}

/// What pages need to leave an address space, made by the tracer at a stop of one of its threads.
pub(crate) struct Attached {
    /// Its userfaultfd, after the handshake, not blocking. `None` if the memory side has it
    /// already, from a fork.
    pub uffd: Option<Uffd>,
    /// The descriptor as the helper names it in its calls: its number, marked for the filter.
    pub number: u64,
    /// Makes calls there.
    pub inside: Box<dyn Inside>,
    /// Number of the helper in the kernel's messages.
    pub helper: i32,
    /// Its number here; 0 if it is not a process.
    pub helper_here: i32,
    /// The number of its process here.
    pub pid: i32,
    /// An empty writable mapping of the helper's own, which receives pages that are moved out; not
    /// inherited by fork.
    pub staging: Range<usize>,
    /// Further such mappings, one for each protection of memory that can be moved there (bits of
    /// `PROT_`), as far as the system permits them.
    pub others: Vec<(u8, Range<usize>)>,
    /// Where the arguments of ioctls may be written, 16 KiB.
    pub arguments: usize,
    /// All addresses of the helper, including the above and its code: they never leave.
    pub all: Range<usize>,
    /// The helper may change protections: no filter of the program applies.
    pub may_protect: bool,
}

/// The memory side. Only the tracer's thread calls it, and it never waits.
pub(crate) trait Memory: Send + Sync {
    /// A program begins in a new address space; `pid` is stopped before its first instruction.
    fn exec(&self, pid: i32) -> SpaceId;
    /// A process that ran before it was traced. It may share memory with the processes that it was
    /// forked from. Returns its space.
    fn found(&self, pid: i32) -> SpaceId;
    /// A process with a copy of an address space was made; it has not run yet. Returns its space.
    fn forked(&self, parent: SpaceId, pid: i32) -> SpaceId;
    /// A thread shares an address space from now on.
    fn joined(&self, space: SpaceId, thread: i32);
    /// The thread of `ticket` is about to end. Returns true if it may continue at once, because the
    /// pages that the kernel needs are present; otherwise the ticket holds it.
    fn ends(&self, space: SpaceId, ending: &Ending<'_>, ticket: Ticket) -> bool;
    /// A thread no longer shares it; it may not have ended yet.
    fn left(&self, space: SpaceId, thread: i32);
    /// A thread of it was killed, and others continue: its last actions may not be reported.
    fn doubt(&self, space: SpaceId);
    /// Whether this space should be attached at the next opportunity (asked at each stop, cheap).
    fn wants(&self, space: SpaceId) -> bool;
    /// The descriptor of a space that has one, for its helper.
    ///
    /// # Errors
    /// The process has no free descriptor.
    fn descriptor(&self, space: SpaceId) -> io::Result<Option<OwnedFd>>;
    /// Whether any part of a space may be closed, now or before.
    fn is_attached(&self, space: SpaceId) -> bool;
    /// It is attached now: `ticket` holds its thread, and the others run.
    fn attach(&self, space: SpaceId, attached: Attached, ticket: Ticket);
    /// It could not be attached; the reason is reported to the user.
    fn cannot_attach(&self, space: SpaceId, reason: String);
    /// It has no helper for now, which is reported to the user with the reason.
    fn does_without(&self, space: SpaceId, reason: String);
    /// A thread of an attached space is held by `ticket`. Returns true if it may continue at once,
    /// because there is nothing to do.
    fn request(&self, space: SpaceId, request: Request, ticket: Ticket) -> bool;
    /// Whether so many bytes can be mapped and used without closing them first.
    fn fits(&self, bytes: usize) -> bool;
    /// The growth at which threads of a space that is being attached should stop.
    fn growth(&self) -> Growth;
    /// After [`Request::Hold`]: the child is there, stopped before it runs, attached; `ticket`
    /// holds the child and its parent.
    fn born(&self, parent: SpaceId, child: SpaceId, attached: Attached, ticket: Ticket);
    /// A fork of an attached space has failed: there is no child.
    fn unborn(&self, parent: SpaceId);
    /// A thread was stopped, as [`Tracing::visit`] asked.
    fn visited(&self, space: SpaceId, thread: i32);
    /// All threads of a space are held, as was asked in this turn ([`Tracing::stand`]).
    fn stands(&self, space: SpaceId, turn: u64);
    /// The helper of a space has ended; the space may get another one.
    fn unattached(&self, space: SpaceId);
    /// The last task of a space has left it; its stored pages can go.
    fn gone(&self, space: SpaceId);
}

/// Requests of the memory side to the tracer; may be called from any thread and does not wait.
pub(crate) trait Tracing: Send + Sync {
    /// Stop a thread of this space soon and attach it, if it still wants to be.
    fn attach(&self, space: SpaceId);
    /// Let a held thread continue: the work for it is done.
    fn go_on(&self, ticket: Ticket);
    /// Stop a thread for a moment, and report that by [`Memory::visited`].
    fn visit(&self, thread: i32);
    /// Hold all threads of a space where they are, without being noticed, and report by
    /// [`Memory::stands`] when all are held; or let them continue. If a thread does not stop soon,
    /// such as the parent of a vfork, the report waits for it.
    fn stand(&self, space: SpaceId, turn: u64, still: bool);
    /// End the helper of a space, which is late; [`Memory::unattached`] reports its end.
    fn end_helper(&self, space: SpaceId);
    /// End the processes that have this space, because its pages cannot be served. The message is
    /// for the user.
    fn end_space(&self, space: SpaceId, message: String);
    /// End the processes that have this space, because memory finds no room; all, if the program
    /// itself is one of them. The message is for the user.
    fn end_victim(&self, space: SpaceId, why: String);
    /// Report to the user the unmanaged processes that the memory side knows.
    fn tell(&self);
    /// End the whole tree, because its pages cannot be served. The message is for the user.
    fn end(&self, message: String);
    /// End what is left of the tree, because the user has told it to end.
    fn end_rest(&self);
}
