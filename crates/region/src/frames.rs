//! The calls that put pages in their place, move them to the staging area and drop them. All
//! `unsafe` code of paging is here; word/W1 and ring/G1, G2 say which thread may make which call
//! when.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

use crate::sys::map::{Mapping, can_drop_many, drop_many, is_there, unmerge};
use crate::sys::signal::die;
use zfold_uffd::page::{is_zero, page_len};
use zfold_uffd::{Pagemap, Partial, Uffd};

/// How often a move is retried when the kernel asks for it.
const TRIES: u32 = 1000;

/// The descriptor and the staging area.
#[derive(Debug)]
pub(super) struct Frames {
    uffd: Uffd,
    staging: Mapping,
    /// Missing pages of the staging area read as zeros.
    quiet: bool,
    /// Whether threads wait in the kernel for pages, and are to be woken.
    wakes: bool,
    /// Says which pages the kernel protects, if pages can be protected and dropped where they are.
    pagemap: Option<Pagemap>,
    /// It has been wrong about a page that was protected: no others are from then on.
    lost_mark: AtomicBool,
}

/// The result of moving pages out.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Moved {
    /// Pages from the beginning that were moved.
    pub done: usize,
    /// Why the next one was not. `NOENT`: it is not there, because the owner has dropped it by
    /// `madvise`. Otherwise it stays: a device or another process uses it, the mapping was
    /// protected or replaced, or it cannot be touched (`FAULT`), since its memory is broken.
    pub why: Option<Errno>,
}

/// Makes a call for all of a range, in as few pieces as possible. A failure ends the process.
fn for_all(
    range: &Range<usize>,
    what_fails: &str,
    call: impl Fn(&Range<usize>) -> Result<(), Partial>,
) {
    let (mut at, mut step) = (range.start, range.len());
    while at < range.end {
        let some = at..range.end.min(at + step);
        let Err(Partial { done, error }) = call(&some) else {
            at = some.end;
            continue;
        };
        at += done;
        match error {
            Errno::AGAIN => rustix::thread::sched_yield(),
            Errno::EXIST => at += page_len(),
            // Its owner has split the mapping, for example by mprotect: no call crosses the border.
            Errno::NOENT if some.len() > page_len() => step = page_len(),
            Errno::NOMEM => die(what_fails, "the system has no memory"),
            _ => die(what_fails, "its mapping was changed by munmap, mmap or mremap"),
        }
    }
}

impl Frames {
    /// Takes the descriptor, after the handshake, and a staging area; `protects`: the handshake was
    /// for [`PROTECT`](zfold_uffd::Features::PROTECT), too.
    ///
    /// # Errors
    /// The system's, if the area cannot be registered.
    pub(super) fn new(
        uffd: Uffd,
        staging: Mapping,
        wakes: bool,
        protects: bool,
    ) -> std::io::Result<Self> {
        let all = staging.range(0..staging.len() / page_len());
        // A page that is read here may be missing: one that its owner has discarded by `MADV_FREE`
        // and that the kernel took here. And for a program that locks all its memory, the kernel
        // fills missing pages. Neither must wait for a thread; they do wait if the processor cannot
        // protect pages from writing.
        let quiet = uffd.register_quietly(&all).is_ok();
        if !quiet {
            // SAFETY: the area was made for this, and is only accessed where pages are.
            unsafe { uffd.register(all.clone()) }?;
        }
        // Otherwise it costs a call for each page, as moving does.
        let protects = protects && quiet && can_drop_many();
        let pagemap = protects.then(Pagemap::open_own).and_then(Result::ok);
        let pagemap = pagemap.filter(|pagemap| pagemap.protected(&all).is_ok());
        Ok(Self { uffd, staging, quiet, wakes, pagemap, lost_mark: AtomicBool::new(false) })
    }

    /// Whether pages are to be protected from writes, to be dropped where they are.
    pub(super) fn protects(&self) -> bool {
        // Relaxed: what is dropped is asked about each time (word/W5).
        self.pagemap.is_some() && !self.lost_mark.load(Ordering::Relaxed)
    }

    /// Has pages no longer merged with equal ones by the kernel, which forgets the protection of
    /// those that it merges and refuses to move them. Returns whether that holds until a thread of
    /// the process asks for merging once more.
    pub(super) fn part(&self, pages: &Range<usize>) -> bool {
        unmerge(pages)
    }

    /// Returns those of some pages that the kernel protects from writes, in order; none if it does
    /// not say.
    pub(super) fn protected(&self, pages: &Range<usize>) -> Vec<Range<usize>> {
        let asked = self.pagemap.as_ref().and_then(|pagemap| pagemap.protected(pages).ok());
        asked.unwrap_or_default()
    }

    /// A page that came protected was not found to be so. If it is there at all, which it is not if
    /// its owner has dropped it, some part of the system takes protection away, and may do so
    /// again.
    pub(super) fn unprotected(&self, page: usize) {
        if is_there(page) {
            self.lost_mark.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn uffd(&self) -> &Uffd {
        &self.uffd
    }

    /// Registers a region, whose missing pages are brought in from now on.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn adopt(&self, map: &Mapping) -> std::io::Result<()> {
        let all = map.range(0..map.len() / page_len());
        match &self.pagemap {
            // SAFETY: as below.
            Some(_) => unsafe { self.uffd.register_protecting(&all) },
            // SAFETY: the mapping was made for this, and every fault in it is resolved until it is
            // unmapped.
            None => unsafe { self.uffd.register(all) },
        }
    }

    /// Fills missing pages from `to` on, protected from writes or not. The caller is in charge of
    /// them (word/W1). Pages that are there already, which they only are if their owner has changed
    /// the mapping, stay as they are.
    pub(super) fn put(&self, to: usize, pages: &[u8], protected: bool) {
        for_all(&(to..to + pages.len()), "cannot bring a page back", |some| {
            let (to, pages) = (some.start, &pages[some.start - to..some.end - to]);
            match protected {
                // SAFETY: as below; `adopt` has registered it for that.
                true => unsafe { self.uffd.copy_protected(to, pages, self.wakes) },
                // SAFETY: the range is registered, and the caller, in charge of the pages, has
                // their contents.
                false => unsafe { self.uffd.copy(to, pages, self.wakes) },
            }
        });
    }

    /// Allows writes to pages, and wakes the threads that wait for that. The caller is in charge of
    /// them.
    pub(super) fn allow_writes(&self, pages: &Range<usize>) {
        for_all(pages, "cannot allow a write", |some| {
            self.uffd.protect(some, false).map_err(|error| Partial { done: 0, error })
        });
    }

    /// Drops pages in their places, which the caller is in charge of and which are
    /// [`protected`](Self::protected); `true` for each range that was dropped. Of others, of which
    /// their owner has locked or changed a part, some pages may be gone; a single page is not.
    pub(super) fn drop_places(&self, ranges: &[Range<usize>]) -> Vec<bool> {
        // SAFETY: the store has what is dropped, and no thread can write there meanwhile (word/W5);
        // those that read see the page before, or wait until the caller is done.
        unsafe { drop_many(ranges) }
    }

    /// Wakes the threads that wait in the kernel for a page that is there.
    pub(super) fn wake(&self, page: usize) {
        if self.wakes {
            let _ = self.uffd.wake(page..page + page_len());
        }
    }

    /// Moves pages from `from` on to the staging area. The caller is in charge of the pages, and
    /// the slots are its own and empty (ring/G1).
    pub(super) fn take_out(&self, from: usize, slots: Range<usize>) -> Moved {
        let to = self.staging.range(slots.clone()).start;
        self.take(to, from, slots.len(), |done| {
            // Where it cannot be read if it is missing. What the system has swapped out meanwhile
            // counts as missing there.
            if !self.quiet && !is_there(to + done * page_len()) {
                return false;
            }
            let slot = slots.start + done..slots.start + done + 1;
            let filled = !is_zero(self.staged(slot.clone()));
            if !filled {
                // Filled by the kernel, for a program that locks its memory. If it was the page
                // itself, it is found missing in its place.
                self.drop_staged(slot);
            }
            filled
        })
    }

    /// Moves a page back from its slot; the caller is in charge of it.
    pub(super) fn take_back(&self, slot: usize, to: usize) -> bool {
        let from = self.staging.range(slot..slot + 1);
        self.part(&from);
        let moved = self.take(to, from.start, 1, |_| is_there(to));
        if moved.done == 1 {
            self.wake(to);
        }
        moved.done == 1
    }

    /// `is_it` returns whether the destination has the page, whose move was not reported; if not,
    /// it empties the destination.
    fn take(&self, to: usize, from: usize, count: usize, is_it: impl Fn(usize) -> bool) -> Moved {
        let (mut done, mut step, mut tries, page) = (0, count, 0, page_len());
        while done < count {
            let some = step.min(count - done);
            let at = from + done * page;
            // SAFETY: the caller is in charge of the pages on both sides.
            let result = unsafe { self.uffd.take_whole(to + done * page, at..at + some * page) };
            let Err(partial) = result else {
                done += some;
                continue;
            };
            done += partial.done / page;
            match partial.error {
                // The page is in use elsewhere, or the address space is being changed.
                Errno::AGAIN if tries < TRIES => {
                    tries += 1;
                    rustix::thread::sched_yield();
                }
                // The mapping may be split: no call crosses the border.
                _ if partial.done == 0 && some > 1 => step = 1,
                // It was moved, which was not reported (`Uffd::take_whole`).
                _ if is_it(done) => done += 1,
                Errno::EXIST if tries < TRIES => tries += 1,
                error => return Moved { done, why: Some(error) },
            }
        }
        Moved { done, why: None }
    }

    /// The pages in slots, which no thread writes; missing pages read as zeros. Only the caller may
    /// drop them (ring/G1, G2).
    pub(super) fn staged(&self, slots: Range<usize>) -> &[u8] {
        // SAFETY: pages get there and leave only by moves, and are dropped only by the caller of
        // `drop_staged`, which waits for readers (ring/G2). The kernel puts only zeros where there
        // is nothing.
        unsafe { self.staging.bytes(slots) }
    }

    /// Drops the pages in slots that no thread reads any longer (ring/G1, G2).
    pub(super) fn drop_staged(&self, slots: Range<usize>) {
        // SAFETY: ring/G1, G2.
        unsafe { self.staging.drop_pages(slots) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zfold_uffd::{Faults, Features};

    const PAGES: usize = 4;

    /// Returns a mapping whose pages are full of their number plus one, if pages can be moved.
    fn filled() -> Option<(Frames, Mapping)> {
        let opened = Uffd::open(Faults::UserOnly);
        let features = Features::MOVE.with(Features::SIGBUS).with(Features::PROTECT);
        let opened = opened.and_then(|uffd| uffd.handshake(features).map(|()| uffd));
        let skipped =
            |error: &std::io::Error| zfold_testing::skip(format_args!("UFFDIO_MOVE: {error}"));
        let uffd = opened.inspect_err(skipped).ok()?;
        let map = Mapping::managed(PAGES * page_len()).unwrap();
        let staging = Mapping::managed(PAGES * page_len()).unwrap();
        let frames = Frames::new(uffd, staging, false, true).unwrap();
        frames.adopt(&map).unwrap();
        for page in 0..PAGES {
            frames.put(map.range(page..page + 1).start, &vec![page as u8 + 1; page_len()], false);
        }
        Some((frames, map))
    }

    fn assert_staged(frames: &Frames, slots: Range<usize>) {
        for slot in slots {
            assert_eq!(frames.staged(slot..slot + 1), vec![slot as u8 + 1; page_len()]);
        }
    }

    #[test]
    fn pages_whose_move_was_not_reported_are_where_they_were_to_go() {
        let Some((frames, map)) = filled() else { return };
        let at = |page: usize| map.range(page..page + 1).start;
        // As the kernel does it: the first two are moved, and the call says nothing of them.
        let to = frames.staging.range(0..PAGES).start;
        // SAFETY: nobody else knows of the two mappings.
        unsafe { frames.uffd.take_whole(to, map.range(0..2)) }.unwrap();
        assert_eq!(frames.take_out(at(0), 0..PAGES), Moved { done: PAGES, why: None });
        assert_staged(&frames, 0..PAGES);
        // And back, of which nothing is said either.
        // SAFETY: as above.
        unsafe { frames.uffd.take_whole(at(1), frames.staging.range(1..2)) }.unwrap();
        assert!(frames.take_back(1, at(1)) && frames.take_back(3, at(3)));
        for page in [1, 3] {
            // SAFETY: the page is there, and nobody writes it.
            let there = unsafe { map.bytes(page..page + 1) };
            assert_eq!(there, vec![page as u8 + 1; page_len()]);
        }
        // What is not there for another reason is told.
        let gone = Moved { done: 0, why: Some(Errno::NOENT) };
        assert_eq!(frames.take_out(at(0), 1..2), gone);
    }

    /// As mlockall does it, and the kernel with what was given up by `MADV_FREE`.
    #[test]
    fn the_kernel_may_fill_and_empty_the_staging_area() {
        const POPULATE_WRITE: libc::c_int = 23;
        let Some((frames, map)) = filled() else { return };
        let staging = frames.staging.range(0..PAGES);
        let start = std::ptr::with_exposed_provenance_mut(staging.start);
        // SAFETY: the advice fills in what is missing, and nobody has references there.
        let result = unsafe { libc::madvise(start, staging.len(), POPULATE_WRITE) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        let from = map.range(0..PAGES).start;
        assert_eq!(frames.take_out(from, 0..PAGES), Moved { done: PAGES, why: None });
        assert_staged(&frames, 0..PAGES);
        frames.drop_staged(1..2);
        assert_eq!(frames.staged(1..2), vec![0; page_len()]);
        assert_staged(&frames, 2..PAGES);
    }
}
