//! The interface of a guest's memory and of its image to the core.

use std::ops::Range;

use rustix::io::Errno;
use zfold_store::LoadError;
use zfold_uffd::page::PAGE;
use zfold_uffd::{Event, Partial};

/// The guest's memory, as the kernel lets other processes act on it.
pub(crate) trait Space {
    /// Adds all unread messages.
    fn read(&mut self, into: &mut Vec<Event>);
    /// Fills missing pages, and wakes the threads that wait for them.
    fn copy(&mut self, to: usize, pages: &[u8]) -> Result<(), Partial>;
    /// Maps zeros where pages are missing, and wakes the threads that wait for them.
    fn zero(&mut self, of: Range<usize>) -> Result<(), Partial>;
    /// Wakes all threads that wait in a range; they look again.
    fn wake(&mut self, of: Range<usize>);
    /// Records that a fault that was read at that time was answered.
    fn answered(&mut self, since: u64);
}

/// The image from which the guest was restored.
pub(crate) trait Image {
    /// Returns whether a page is known to be zeros, without reading it.
    fn is_zero(&self, page: u64) -> bool;
    /// Reads a page.
    fn load(&self, page: u64, into: &mut [u8]) -> Result<(), LoadError>;
    /// Returns whether the pages that guests ask for are recorded.
    fn is_recorded(&self) -> bool;
    /// Records that a guest asked for a page.
    fn touched(&self, page: u64);
    /// Returns the first page from `page` on that guests are known to ask for.
    fn next_wanted(&self, page: u64) -> Option<u64>;
}

/// Fills the missing pages of a unit from `done` on. Parts may be there, put in by a server that
/// was lost. The bytes done count from `done`.
pub(super) fn copy_around(
    space: &mut impl Space,
    at: usize,
    bytes: &[u8],
    mut done: usize,
) -> Result<(), Partial> {
    let (from, mut is_around) = (done, false);
    loop {
        let Err(stopped) = space.copy(at + done, &bytes[done..]) else { return Ok(()) };
        done += stopped.done;
        match stopped.error {
            Errno::EXIST if done + PAGE < bytes.len() => done += PAGE,
            // It is one page for the kernel, so all of it is there.
            Errno::INVAL if is_around => return Err(Partial { done: 0, error: Errno::EXIST }),
            error => return Err(Partial { done: done - from, error }),
        }
        is_around = true;
    }
}

/// Reads the pages from `page` on.
pub(super) fn load(image: &impl Image, page: u64, into: &mut [u8]) -> Result<(), LoadError> {
    let mut pages = into.chunks_exact_mut(PAGE).zip(page..);
    pages.try_for_each(|(bytes, page)| image.load(page, bytes))
}
