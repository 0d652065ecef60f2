//! What the tracer and the memory side of the manager say to each other.
//!
//! The tracer (one thread) sees tasks, stops and system calls; the memory side sees address
//! spaces, ranges and pages. Every change of an address space comes as a pair `before`/`after`
//! around the system call that makes it; in between the calling thread is inside that call and the
//! other threads of the space run on.

use std::io;
use std::ops::Range;

use crate::sys::uffd::Uffd;

/// An address space, from exec or fork to the exit or exec of the last task in it. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SpaceId(pub u64);

/// A change that a system call makes to an address space. Ranges are whole pages (already rounded
/// as the kernel rounds them); calls with arguments that the kernel refuses anyway are not told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// mmap of private anonymous memory. `at` is where with MAP_FIXED, else what the caller
    /// proposes. What lay there with MAP_FIXED is gone.
    Map { at: usize, len: usize, fixed: bool, reserve_only: bool },
    /// mmap of anything else (files, shared, huge pages) with MAP_FIXED: only removes.
    Replace { range: Range<usize> },
    /// munmap.
    Unmap { range: Range<usize> },
    /// madvise that gives up contents: DONTNEED, DONTNEED_LOCKED, FREE, REMOVE.
    Discard { range: Range<usize> },
    /// madvise(PAGEOUT): the pages should leave now. Wants no return.
    PageOut { range: Range<usize> },
    /// The program is about to have its own descriptor told of missing pages in the range: from
    /// now on it is not managed.
    Yield { range: Range<usize> },
    /// mremap; the result says where it is now. `keep`: MREMAP_DONTUNMAP, the old range stays,
    /// empty. `fixed`: where to, if the caller says so.
    Remap { from: Range<usize>, len: usize, fixed: Option<usize>, keep: bool },
    /// brk; the result is the new end. 0 asks for the present one.
    Brk { to: usize },
}

/// What the tracer does with a thread that is about to make a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Follow {
    /// Lets it go; `after` will not be called.
    Go,
    /// Stops it again when the call has returned and calls `after`.
    Return,
}

/// A system call that a helper makes inside an address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Call {
    /// Number of the call, or [`Call::TOUCH`].
    pub number: u64,
    /// Its arguments.
    pub args: [u64; 6],
}

impl Call {
    /// Not a system call: writes back, atomically and unchanged, the byte at `args[0]`, so that a
    /// page that is shared after a fork becomes the space's own. The page must be there and
    /// writable, else the result is -EFAULT.
    pub(crate) const TOUCH: u64 = u64::MAX;
    /// Number that the descriptor for missing pages has in the helper, for `ioctl` calls there.
    pub(crate) const UFFD: u64 = 1;
    /// Calls that go to the helper at once, at most.
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
}

/// What is needed to manage an address space: made by the tracer at a stop of one of its threads.
pub(crate) struct Attached {
    /// Descriptor for its missing pages, after the handshake with THREAD_ID and MOVE; blocking.
    pub uffd: Uffd,
    /// Number of that descriptor in the helper, for the calls it makes with it.
    pub number: i32,
    /// Makes calls there.
    pub inside: Box<dyn Inside>,
    /// Thread of the helper, whose own faults are answered first and without a limit.
    pub helper: i32,
    /// An empty writable mapping of the helper's own, at least 2 MiB + [`Call::AT_ONCE`] times 40
    /// bytes; not inherited by fork, never told as a change. The first part, up to `arguments`,
    /// receives pages that are moved out.
    pub staging: Range<usize>,
    /// Where inside `staging` the arguments of ioctls may be written (by process_vm_writev).
    pub arguments: usize,
    /// A process that has this memory: for process_vm_readv, process_vm_writev, /proc/PID/pagemap.
    /// It is the helper.
    pub pid: i32,
}

/// The memory side. Called by the tracer thread only, and never waits for it.
pub(crate) trait Memory: Send + Sync {
    /// A program begins in a new address space; `pid` is stopped before its first instruction, and
    /// `/proc/PID/maps` shows what exec mapped.
    fn exec(&self, space: SpaceId, pid: i32);
    /// A thread of `space` is about to make a change.
    fn before(&self, space: SpaceId, change: &Change) -> Follow;
    /// It has made it; `result` is what the call returned (negative error numbers). The thread
    /// has not seen it yet.
    fn after(&self, space: SpaceId, change: &Change, result: i64);
    /// Whether this space should be attached at the next opportunity (asked at each stop, cheap).
    fn wants(&self, space: SpaceId) -> bool;
    /// It is attached now: its thread is stopped, the others run.
    fn attach(&self, space: SpaceId, attached: Attached);
    /// It could not be attached; the reason goes to the person.
    fn cannot_attach(&self, space: SpaceId, reason: String);
    /// A thread is about to fork. Returns whether the child must be attached before it runs
    /// (otherwise it begins unattached). Until `forked`, pages that are loaded stay known as
    /// stored as well, and none leaves.
    fn fork(&self, space: SpaceId) -> bool;
    /// The child exists, stopped before its first instruction, attached if that was asked for;
    /// or the fork failed.
    fn forked(&self, parent: SpaceId, child: Option<(SpaceId, i32, Option<Attached>)>);
    /// The last task of a space has left it; what is stored for it can go.
    fn gone(&self, space: SpaceId);
}

/// What the memory side asks of the tracer; may be called from any thread and does not wait.
pub(crate) trait Tracing: Send + Sync {
    /// Stop a thread of this space soon and attach it, if it still wants to be.
    fn attach(&self, space: SpaceId);
    /// End the whole tree: what it needs cannot be served. The message is for the person.
    fn end(&self, message: String);
}
