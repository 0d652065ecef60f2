//! Guest memory whose owner may take it away.
//!
//! A guest's memory is a file of its monitor, mapped here as well. A touch of a page that the file
//! no longer has, because it was truncated, or that the system cannot bring in, raises `SIGBUS`,
//! which ends the process and all its disks. No look at the file before can rule that out: it may
//! shrink between the look and the touch. So a handler puts memory of zeros in the place of a
//! guest's and marks the guest as lost. This is the only unsafe code of the crate.
//!
//! - L1: a range in a slot is whole pages of one mapping of [`Watched::memory`], which is unmapped
//!   only after the slot was given back. Rust knows of no reference to these bytes: other processes
//!   change them at any time, and `vm_memory` reads and writes them as such (volatile).
//! - L2: a slot's `len` changes only while its `start` is 0. So a length read between two equal
//!   starts belongs to them.
//! - L3: the mark is set before the zeros appear: a thread that has copied zeros and finds no mark
//!   has copied the guest's.
//! - L4: what the handler calls takes no lock and allocates nothing (sigbus/H2).

use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use vm_memory::{GuestMemoryBackend, GuestMemoryMmap};
use zfold_store::pool::Lock;
use zfold_uffd::sigbus::{Resolver, Touch};

/// Regions of all guests of the process; a guest has at most 32, and twice as many while they
/// change.
const SLOTS_MAX: usize = 1024;

static SLOTS: [Slot; SLOTS_MAX] = [const { Slot::new() }; SLOTS_MAX];

static RESOLVER: Resolver = Resolver::new(|touch: &Touch| lose(touch.address));

/// Held while slots are taken.
static TAKING: Lock<()> = Lock::new(());

/// The addresses of a region.
#[derive(Debug)]
struct Slot {
    /// 0: free.
    start: AtomicUsize,
    len: AtomicUsize,
    lost: AtomicBool,
}

impl Slot {
    const fn new() -> Self {
        Self { start: AtomicUsize::new(0), len: AtomicUsize::new(0), lost: AtomicBool::new(false) }
    }

    /// Returns the range, if it has one (L2).
    fn range(&self) -> Option<(usize, usize)> {
        let start = self.start.load(Ordering::SeqCst);
        let len = self.len.load(Ordering::SeqCst);
        (start != 0 && self.start.load(Ordering::SeqCst) == start).then_some((start, len))
    }
}

/// A guest's memory, of which a touch never ends the process.
#[derive(Debug)]
struct Watched {
    memory: GuestMemoryMmap,
    slots: Vec<&'static Slot>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        // Before the memory goes (L1).
        self.slots.iter().for_each(|slot| slot.start.store(0, Ordering::SeqCst));
    }
}

/// A share of a guest's memory.
#[derive(Clone, Debug)]
pub(super) struct Guest(Arc<Watched>);

impl Guest {
    /// Returns `memory`, watched.
    ///
    /// # Errors
    /// If the guests of this process have too many regions, or the system takes no handler.
    ///
    /// # Cost
    /// Looks for a free slot for each region.
    pub(super) fn watch(memory: GuestMemoryMmap) -> io::Result<Self> {
        let _taking = TAKING.lock();
        RESOLVER.install()?;
        let mut watched = Watched { slots: Vec::new(), memory };
        let page = rustix::param::page_size();
        let mut free = SLOTS.iter().filter(|slot| slot.start.load(Ordering::SeqCst) == 0);
        for region in watched.memory.iter() {
            let slot = free.next().ok_or_else(|| io::Error::other("too many regions"))?;
            slot.lost.store(false, Ordering::SeqCst);
            slot.len.store(region.size().next_multiple_of(page), Ordering::SeqCst);
            slot.start.store(region.as_ptr().expose_provenance(), Ordering::SeqCst);
            watched.slots.push(slot);
        }
        Ok(Self(Arc::new(watched)))
    }

    /// Returns whether a part of it was taken away: it then reads as zeros.
    pub(super) fn is_lost(&self) -> bool {
        self.0.slots.iter().any(|slot| slot.lost.load(Ordering::SeqCst))
    }
}

impl Deref for Guest {
    type Target = GuestMemoryMmap;

    fn deref(&self) -> &GuestMemoryMmap {
        &self.0.memory
    }
}

/// Marks the guests whose memory `address` is, and puts zeros in its place. Returns whether the
/// address can be touched again.
fn lose(address: usize) -> bool {
    let mut found = None;
    for slot in &SLOTS {
        // A region that a guest keeps when others change is in two slots for a moment.
        if let Some((start, len)) = slot.range()
            && (start..start + len).contains(&address)
        {
            slot.lost.store(true, Ordering::SeqCst);
            found = Some((start, len));
        }
    }
    let Some((start, len)) = found else { return false };
    // All of it: a guest without a part of its memory is no guest, and one mapping stays one.
    // Where there is no room for that, because the system promises no more memory than it has, one
    // page after the other.
    let page = rustix::param::page_size();
    put_zeros(start, len) || put_zeros(address / page * page, page)
}

fn put_zeros(start: usize, len: usize) -> bool {
    let start = std::ptr::with_exposed_provenance_mut::<libc::c_void>(start);
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    // Locked memory would count twice against its limit. Memory that is not locked does not mind.
    // SAFETY: unlocking changes no contents.
    unsafe { libc::munlock(start, len) };
    // SAFETY: these are pages of a guest's mapping, which stays until the slot is given back, and
    // of whose contents Rust assumes nothing (L1).
    let mapped = unsafe { libc::mmap(start, len, access, flags, -1, 0) };
    mapped != libc::MAP_FAILED
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    use vm_memory::{Bytes as _, FileOffset, GuestAddress};

    use super::*;

    /// The variable that makes the test the program that it looks at, and says what SIGBUS did
    /// before.
    const BEFORE: &str = "ZFOLD_TEST_SIGBUS_BEFORE";

    /// Loses a guest, twice, after a SIGBUS that was sent.
    fn lose_guests(before: &str) {
        let action = match before {
            "ignored" => Some(libc::SIG_IGN),
            "ends" => Some(libc::SIG_DFL),
            // That of the standard library.
            _ => None,
        };
        if let Some(action) = action {
            // SAFETY: both actions are the system's own.
            unsafe { libc::signal(libc::SIGBUS, action) };
        }
        for _ in 0..2 {
            let file = tempfile::tempfile().unwrap();
            file.set_len(1 << 20).unwrap();
            let place = FileOffset::new(file.try_clone().unwrap(), 0);
            let range = (GuestAddress(0), 1 << 20, Some(place));
            let guest =
                Guest::watch(GuestMemoryMmap::from_ranges_with_files([range]).unwrap()).unwrap();
            // SAFETY: sends the signal to this thread; it has come when this returns.
            unsafe { libc::raise(libc::SIGBUS) };
            assert!(!guest.is_lost());
            file.set_len(0).unwrap();
            assert_eq!(guest.read_obj::<u8>(GuestAddress(0)).unwrap(), 0);
            assert!(guest.is_lost());
        }
    }

    #[test]
    fn a_signal_that_was_sent_leaves_the_handler_there() {
        if let Ok(before) = env::var(BEFORE) {
            return lose_guests(&before);
        }
        let module = module_path!().split_once("::").unwrap().1;
        let name = format!("{module}::a_signal_that_was_sent_leaves_the_handler_there");
        for (before, ends) in [("handled", false), ("ignored", false), ("ends", true)] {
            let mut test = Command::new(env::current_exe().unwrap());
            let output = test.args(["--exact", &name]).env(BEFORE, before).output().unwrap();
            let signal = ends.then_some(libc::SIGBUS);
            assert_eq!(output.status.signal(), signal, "{before}: {output:?}");
            assert!(ends || output.status.success(), "{before}: {output:?}");
        }
    }
}
