//! The state of a guest that outlives its server: a file in memory, which other processes hold,
//! too.
//!
//! It begins with a description of the guest, padded to a page. Then come the messages read last, a
//! count of looks, and the bits of its pages: whether each is settled, and was given up.
//!
//! - J1: the kernel writes messages into the journal directly. A thread that discards memory
//!   continues once its message was read, so the message must be in the journal by then; a later
//!   copy would be lost if the server were killed in between. The journal's pages are locked if
//!   that is permitted, so that the kernel need not wait for one while the process is being killed.
//! - J2: messages are overwritten only when the bits include their effects (core/guest/U1, U4).
//! - J3: a mapping belongs to one guest, and one thread reads messages into it. Forked children do
//!   not inherit it. It is as long as its file, and no file gets shorter.
//! - J4: a file that holds only the description is not begun. It grows by one call, and the zeros
//!   that this adds mean that nothing is settled and nothing was read.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, memfd_create};
use zfold_uffd::page::PAGE;
use zfold_uffd::{MESSAGE, given_up};

use crate::core::table::{Bits, words_of};

/// Messages that are read by one call, and calls in a row.
const AT_ONCE: usize = 16;
const ROUNDS: usize = 16;

/// Bytes of the messages.
const MESSAGES: usize = AT_ONCE * ROUNDS * MESSAGE;

/// Most bytes of a guest's description, which are mainly its regions.
const ABOUT_MAX: u64 = 1 << 20;

/// The mapping.
struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to the mapping, not to a thread; words are atomics, and the messages
// have one owner (J3).
unsafe impl Send for Mapping {}
// SAFETY: same as above.
unsafe impl Sync for Mapping {}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapping").field("len", &self.len).finish_non_exhaustive()
    }
}

impl Mapping {
    /// Maps a file from `from` on.
    fn new(file: &File, from: u64, len: usize) -> io::Result<Self> {
        // SAFETY: a fresh mapping at an address that the kernel chooses overlaps nothing.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                from as libc::off_t,
            )
        };
        let Some(base) = NonNull::new(base).filter(|_| base != libc::MAP_FAILED) else {
            return Err(io::Error::last_os_error());
        };
        let mapping = Self { base: base.cast(), len };
        // SAFETY: a range of the mapping just made; the advice affects only children (J3).
        unsafe { libc::madvise(base.as_ptr(), len, libc::MADV_DONTFORK) };
        // SAFETY: same as above; it changes no contents. If it is not permitted, J1 holds as long
        // as the system does not page these pages out.
        unsafe { libc::mlock(base.as_ptr(), MESSAGES) };
        Ok(mapping)
    }

    /// Returns the words after the messages: the count, then the bits.
    fn words(&self) -> &[AtomicU64] {
        let len = (self.len - MESSAGES) / 8;
        // SAFETY: within the mapping, which is `len` bytes long.
        let first = unsafe { self.base.add(MESSAGES) };
        // SAFETY: mapped for as long as `self` lives, aligned as `MESSAGES` is; all accesses of
        // these words are atomic.
        unsafe { std::slice::from_raw_parts(first.cast::<AtomicU64>().as_ptr(), len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, unmapped here only; no reference outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// The bits of a guest.
#[derive(Clone, Debug)]
pub(super) struct Settled(Arc<Mapping>);

impl Bits for Settled {
    fn words(&self) -> &[AtomicU64] {
        &self.0.words()[1..]
    }
}

/// The messages of a guest, and the count of looks.
#[derive(Debug)]
pub(super) struct Messages(Arc<Mapping>);

impl Messages {
    /// Returns the room for messages, in pieces for one call each.
    pub(super) fn rounds(&mut self) -> impl Iterator<Item = &mut [u8]> {
        // SAFETY: mapped for as long as `self` lives; nothing else uses these bytes (J3), and
        // `Settled` uses none of them.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.0.base.as_ptr(), MESSAGES) };
        bytes.chunks_mut(AT_ONCE * MESSAGE)
    }

    /// Returns the ranges given up by the messages read last.
    pub(super) fn given_up(&mut self) -> Vec<std::ops::Range<usize>> {
        self.rounds().flat_map(|round| given_up(round).collect::<Vec<_>>()).collect()
    }

    /// Counts a look, for the front: odd while it lasts.
    pub(super) fn look(&self, lasts: bool) {
        let count = &self.0.words()[0];
        // Relaxed: a count that only this thread changes.
        let last = count.load(Ordering::Relaxed);
        count.store(if lasts { last | 1 } else { last.next_multiple_of(2) }, Ordering::Relaxed);
    }
}

/// A guest's journal.
#[derive(Debug)]
pub(super) struct Journal {
    pub(super) settled: Settled,
    pub(super) messages: Messages,
    /// An earlier server has used it.
    pub(super) is_begun: bool,
}

/// Makes the file of a guest's journal with the guest's description; returns the file, and the
/// offset at which the journal begins.
///
/// # Errors
/// There is no free descriptor, or no memory.
pub(crate) fn create(about: &[u8]) -> io::Result<(File, u64)> {
    let file = File::from(memfd_create("zfold-guest", MemfdFlags::CLOEXEC)?);
    let len = (8 + about.len()).next_multiple_of(PAGE);
    let mut bytes = vec![0; len];
    bytes[..8].copy_from_slice(&(about.len() as u64).to_ne_bytes());
    bytes[8..8 + about.len()].copy_from_slice(about);
    file.write_all_at(&bytes, 0)?;
    Ok((file, len as u64))
}

/// Returns a guest's description, and the offset at which its journal begins.
///
/// # Errors
/// The file is not a journal.
pub(crate) fn about(file: &File) -> io::Result<(Vec<u8>, u64)> {
    let mut word = [0; 8];
    file.read_exact_at(&mut word, 0)?;
    let len = u64::from_ne_bytes(word);
    if len > ABOUT_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut about = vec![0; len as usize];
    file.read_exact_at(&mut about, 8)?;
    Ok((about, (8 + len).next_multiple_of(PAGE as u64)))
}

/// Returns twice the number of looks at the guest, one less while a look lasts; `None` before the
/// first.
pub(crate) fn looks(file: &File, from: u64) -> Option<u64> {
    let mut word = [0; 8];
    file.read_exact_at(&mut word, from + MESSAGES as u64).ok()?;
    Some(u64::from_ne_bytes(word))
}

impl Journal {
    /// Opens the journal of a guest of `units` units; begins it if it is new.
    ///
    /// # Errors
    /// It belongs to another guest, or there is no memory for it.
    pub(super) fn open(file: &File, units: u64) -> io::Result<Self> {
        let (_, from) = about(file)?;
        let len = (MESSAGES + 8 + words_of(units) * 8).next_multiple_of(PAGE);
        let whole = from + len as u64;
        let found = file.metadata()?.len();
        let is_begun = found > from;
        match found {
            found if found == from => file.set_len(whole)?,
            found if found == whole => {}
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
        let mapping = Arc::new(Mapping::new(file, from, len)?);
        let (settled, messages) = (Settled(Arc::clone(&mapping)), Messages(mapping));
        Ok(Self { settled, messages, is_begun })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_writes_another_finds() {
        let (file, from) = create(b"web").expect("a file");
        assert_eq!(about(&file).expect("one of these"), (b"web".to_vec(), from));
        assert_eq!((from, looks(&file, from)), (4096, None));
        let mut first = Journal::open(&file, 100).expect("begun");
        assert!(!first.is_begun && first.messages.given_up().is_empty());
        first.settled.words()[1].store(7, Ordering::Relaxed);
        first.messages.look(true);
        assert_eq!(looks(&file, from), Some(1));
        first.messages.look(false);
        // An event of a discard, as the kernel writes it, in the last round.
        let last = first.messages.rounds().last().expect("a round");
        last[0] = 0x15;
        last[8..16].copy_from_slice(&4096_u64.to_ne_bytes());
        last[16..24].copy_from_slice(&8192_u64.to_ne_bytes());
        drop(first);
        let mut second = Journal::open(&file, 100).expect("opened");
        assert!(second.is_begun);
        assert_eq!(second.messages.given_up(), vec![4096..8192; 1]);
        let bits = second.settled.words()[1].load(Ordering::Relaxed);
        assert_eq!((bits, looks(&file, from)), (7, Some(2)));
        assert!(Journal::open(&file, 100_000).is_err(), "that of a larger guest");
    }
}
