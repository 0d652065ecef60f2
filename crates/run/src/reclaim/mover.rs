//! Takes pages out of an address space, in batches: the helper moves them (`UFFDIO_MOVE`, atomic
//! for each page) into its staging, from where they are read, and then drops them.
//!
//! The destination of a move must be registered. The staging is registered only while pages are
//! moved: so the helper, which empties it, and the evictor, which reads it, never wait for a
//! message to be read, whatever is missing there.
//!
//! The kernel moves pages only between writable mappings of the same protection. So there is a
//! staging for each kind ([`crate::spaces::staging`]). The right one is found when a move is
//! refused, from the mapping of the pages.
//!
//! - M1: a staging is emptied before a batch. After that only moves fill it, or the kernel, with
//!   zeros, for a program that locks all its memory. The kernel may drop a page from it that the
//!   program has discarded by `MADV_FREE`; it reads as zeros.
//! - M2: so a page whose slot holds anything but zeros has left, whatever the kernel said about its
//!   move. Linux 6.18 does not report all pages that it moved: if a page changes at that very
//!   moment, it tries again, moves more, and then returns `EEXIST`, or fewer than it moved
//!   ([`Uffd::take_whole`]). If a page of zeros left so, nothing is lost: the next fault brings
//!   zeros. A call that ends with `EINVAL` without progress has moved nothing: the kernel checks
//!   the mappings before the pages.
//! - M3: memory that cannot be written to is made writable, moved, and given its old protection, by
//!   one message to the helper, while no other thread can change its mapping or write to it
//!   ([`crate::reclaim::protected`]).
//! - M4: pages that are out are read when the lock of the space is free again, before the next
//!   batch. The staging keeps them, since no other thread can use the mover. A fault or a fork that
//!   wants one of them waits for that under the lock; so the thread that reads them waits for no
//!   lock of a space meanwhile, and if it cannot read them, says that they are lost.

use std::io;

use linux_raw_sys::general::uffdio_move;

use crate::core::ranges::{PageNo, Pages, bytes_of, pages_of};
use crate::link::BATCH_BYTES;
use crate::spaces::access::Access;
use crate::spaces::helper::{Helper, madvise, protect};
use crate::spaces::staging::Stays;
use crate::sys::procmap::WRITE;
use crate::sys::seccomp::POPULATE_WRITE;
use zfold_uffd::Uffd;
use zfold_uffd::page::{PAGE_LEN_MAX, PAGE_LEN_MIN, is_zero, page_len, pages_in};

/// Most pages of a batch, whatever their size.
const BATCH_MAX: usize = BATCH_BYTES / PAGE_LEN_MIN;
/// Tries of a move that returns `EAGAIN` without progress.
const TRIES: u8 = 2;
/// Returns the most pages of a batch.
pub(crate) fn batch_max() -> usize {
    pages_in(BATCH_BYTES)
}

/// The result of a batch.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    /// Pages that are out.
    pub pages: Vec<PageNo>,
    /// Where each of them lies: the number of its staging, and its place there.
    pub places: Vec<(usize, usize)>,
    /// The others.
    pub stay: Vec<(PageNo, Stays)>,
}

/// Moves pages out of one address space.
pub(crate) struct Mover<'a> {
    pub helper: &'a mut Helper,
    /// The pages lie in one mapping of this protection, which is not writable (M3); `None`: in any
    /// mappings.
    pub protection: Option<u8>,
}

/// Pages to move, and where they go.
#[derive(Debug, Clone)]
struct Job {
    from: Pages,
    /// Where in the staging.
    at: usize,
    /// The number of the staging.
    into: usize,
    tries: u8,
    /// It lies in one mapping, and this is the right staging for it.
    looked_up: bool,
}

impl Job {
    /// The part from the page `at` on.
    fn split_off(&mut self, at: usize) -> Self {
        let rest =
            Self { from: self.from.start + at..self.from.end, at: self.at + at, ..self.clone() };
        self.from.end = rest.from.start;
        rest
    }
}

impl Mover<'_> {
    /// Moves out pages, at most [`batch_max`]; the result is added to `moved`. Under the lock of
    /// the space. `own`: they were made the space's own; otherwise a busy page stands for its
    /// neighbours.
    ///
    /// # Errors
    /// The helper or the address space is gone, or the helper is late: where the pages are is
    /// unknown until [`salvage`].
    pub(crate) fn take(
        &mut self,
        pages: &[PageNo],
        own: bool,
        moved: &mut Moved,
    ) -> io::Result<()> {
        assert!(pages.len() <= batch_max());
        let mut jobs = self.jobs(pages);
        let mut stay = Vec::new();
        let mut emptied = 0;
        // For each page, the staging that it went to last, and those in which it may be.
        let mut tried = [(0, 0_u8); BATCH_MAX];
        while !jobs.is_empty() {
            let results = self.make_moves(&jobs, &mut emptied)?;
            let mut again = Vec::new();
            for (job, outcome) in jobs.into_iter().zip(results) {
                let is_refused = outcome.error == libc::EINVAL && outcome.done == 0;
                for (into, may_be_in) in &mut tried[job.at..job.at + job.from.len()] {
                    *into = job.into;
                    *may_be_in |= if is_refused { 0 } else { 1 << job.into };
                }
                if !is_refused || !self.look_up(&job, &mut again, &mut stay) {
                    judge(job, outcome, own, &mut again, &mut stay);
                }
            }
            jobs = again;
        }
        let mut stays = [false; BATCH_MAX];
        stay.iter().for_each(|&(at, _)| stays[at] = true);
        let out: Vec<_> = (0..pages.len()).filter(|&at| !stays[at]).collect();
        moved.places.extend(out.iter().map(|&at| (tried[at].0, at)));
        moved.pages.extend(out.into_iter().map(|at| pages[at]));
        for (at, why) in stay {
            if let Some(into) = self.has_left(at, tried[at].1)? {
                moved.places.push((into, at));
                moved.pages.push(pages[at]);
            } else {
                moved.stay.push((pages[at], why));
            }
        }
        Ok(())
    }

    /// Returns the staging in which a page is that was reported as not moved, if it has left (M2):
    /// one of `may_be_in`.
    fn has_left(&mut self, at: usize, may_be_in: u8) -> io::Result<Option<usize>> {
        let page = &mut [0; PAGE_LEN_MAX][..page_len()];
        for into in (0..u8::BITS as usize).filter(|into| may_be_in & (1 << into) != 0) {
            self.helper.inside.read(self.helper.stagings.slot(into, at), page)?;
            if !is_zero(page) {
                return Ok(Some(into));
            }
        }
        Ok(None)
    }

    /// Splits a refused job by its mappings. Returns false if they were looked up before, or cannot
    /// be.
    fn look_up(&mut self, job: &Job, again: &mut Vec<Job>, stay: &mut Vec<(usize, Stays)>) -> bool {
        if job.looked_up {
            return false;
        }
        let Ok(parts) = self.helper.stagings.look_up(&job.from, job.into) else { return false };
        for (from, looked) in parts {
            let at = job.at + (from.start - job.from.start);
            match looked {
                Ok(into) => again.push(Job { from, at, into, tries: job.tries, looked_up: true }),
                Err(why) => stay.extend((at..at + from.len()).map(|at| (at, why))),
            }
        }
        true
    }

    /// Pages in order as runs of neighbours that go to one staging.
    fn jobs(&self, pages: &[PageNo]) -> Vec<Job> {
        let mut jobs = runs(pages);
        if let Some(into) = self.protection.and_then(|may| self.helper.stagings.of(may | WRITE)) {
            let known = |job| Job { into, looked_up: true, ..job };
            return jobs.into_iter().map(known).collect();
        }
        if self.helper.stagings.has_learnt() {
            let split = |job: Job| {
                let parts = self.helper.stagings.split(&job.from);
                parts.into_iter().map(move |(from, into)| {
                    let at = job.at + (from.start - job.from.start);
                    Job { from, at, into, ..job.clone() }
                })
            };
            jobs = jobs.into_iter().flat_map(split).collect();
        }
        jobs
    }

    /// Moves pages, after emptying their stagings, except those `emptied` before. Returns the
    /// result of each move.
    fn make_moves(&mut self, jobs: &[Job], emptied: &mut u8) -> io::Result<Vec<Outcome>> {
        let used = jobs.iter().fold(0_u8, |used, job| used | 1 << job.into);
        // They are empty, unless the program has locked its memory, or touched this.
        let mut calls: Vec<_> = self.helper.drop_calls(used & !*emptied).collect();
        *emptied |= used;
        self.helper.stagings.set_dirty(used);
        calls.extend(self.helper.register_calls(Uffd::REGISTER_CODE, used));
        let all = |jobs: &[Job]| Some(jobs.first()?.from.start..jobs.last()?.from.end);
        let guarded = self.protection.zip(all(jobs)).map(|(may, all)| (may, bytes_of(&all)));
        calls.extend(guarded.iter().map(|(may, bytes)| protect(bytes, may | WRITE)));
        let moves = calls.len()..calls.len() + jobs.len();
        let mut requests = Vec::with_capacity(jobs.len() * REQUEST);
        for (at, job) in jobs.iter().enumerate() {
            let to = self.helper.stagings.slot(job.into, job.at);
            let request = Uffd::move_request(to, &bytes_of(&job.from));
            requests.extend(words(&request).into_iter().flat_map(u64::to_ne_bytes));
            calls.push(self.helper.control(Uffd::MOVE_CODE, at * REQUEST));
        }
        calls.extend(guarded.iter().map(|(may, bytes)| protect(bytes, *may)));
        calls.extend(self.helper.register_calls(Uffd::UNREGISTER_CODE, used));
        self.helper.inside.write(self.helper.arguments, &requests)?;
        let results = self.helper.call(&calls)?;
        // A mapping that could be made writable merely gets its old protection back.
        if guarded.is_some() && results[moves.start - 1] == 0 && results[moves.end] != 0 {
            return Err(io::Error::other("its memory cannot be protected again"));
        }
        let results = &results[moves];
        if results.iter().any(|&result| result < 0) {
            self.helper.inside.read(self.helper.arguments, &mut requests)?;
        }
        let outcomes = results.iter().zip(requests.chunks(REQUEST)).map(|(&result, request)| {
            let word = request[REQUEST - 8..].try_into().expect("8 bytes");
            // After an error without progress it holds that error, which is negative.
            let done = usize::try_from(i64::from_ne_bytes(word)).unwrap_or(0) / page_len();
            Outcome { error: if result < 0 { -result as i32 } else { 0 }, done }
        });
        Ok(outcomes.collect())
    }
}

/// After [`Mover::take`] has failed and the helper has ended, so that nothing moves any
/// longer: finds the pages that the batch had moved, through another process of the space. A
/// page that is not found has stayed, or was zeros (M2), and is to be tried again.
///
/// # Errors
/// The stagings cannot be read, nor can the space.
pub(super) fn salvage(
    helper: &Helper,
    access: &Access,
    pages: &[PageNo],
    moved: &mut Moved,
    mut read: impl FnMut(usize, &mut [u8]) -> io::Result<()>,
) -> io::Result<()> {
    *moved = Moved::default();
    unregister(helper, access)?;
    let bytes = &mut [0; PAGE_LEN_MAX][..page_len()];
    for (at, &page) in pages.iter().enumerate() {
        let mut found = None;
        for into in 0..helper.stagings.ranges().count() {
            read(helper.stagings.slot(into, at), bytes)?;
            if !is_zero(bytes) {
                found = Some(into);
                break;
            }
        }
        if let Some(into) = found {
            moved.pages.push(page);
            moved.places.push((into, at));
        } else {
            moved.stay.push((page, Stays::Again));
        }
    }
    Ok(())
}

/// Makes pages that are shared since a fork the space's own. Without the lock of the space: a
/// page that left meanwhile is faulted in like any other.
///
/// # Errors
/// The helper is gone.
pub(super) fn make_own(helper: &mut Helper, pages: &[PageNo]) -> io::Result<()> {
    let calls = runs(pages).into_iter().map(|job| madvise(&bytes_of(&job.from), POPULATE_WRITE));
    helper.call(&calls.collect::<Vec<_>>()).map(drop)
}

/// Takes the stagings off the registration: a read of a missing page would wait.
pub(super) fn unregister(helper: &Helper, access: &Access) -> io::Result<()> {
    helper.stagings.ranges().try_for_each(|staging| access.unregister(&pages_of(staging)))
}

/// Sorts the rest of a job into parts that are tried again, and pages that stay, by their offsets
/// in the staging.
fn judge(
    mut job: Job,
    outcome: Outcome,
    own: bool,
    again: &mut Vec<Job>,
    stay: &mut Vec<(usize, Stays)>,
) {
    if outcome.error == 0 {
        return;
    }
    if outcome.done > 0 {
        let rest = job.split_off(outcome.done.min(job.from.len()));
        again.extend(Some(Job { tries: 1, ..rest }).filter(|rest| !rest.from.is_empty()));
        return;
    }
    let all = job.at..job.at + job.from.len();
    let stays = match outcome.error {
        libc::EINVAL if job.looked_up => return stay.extend(all.map(|at| (at, Stays::Fixed))),
        libc::EAGAIN if job.tries < TRIES => {
            return again.push(Job { tries: job.tries + 1, ..job });
        }
        libc::EBUSY if !own => return stay.extend(all.map(|at| (at, Stays::Busy))),
        // Several mappings, or one page in another state: find it.
        libc::EINVAL | libc::ENOENT | libc::EFAULT | libc::EBUSY if all.len() > 1 => {
            job.tries = 1;
            let rest = job.split_off(job.from.len() / 2);
            return again.extend([job, rest]);
        }
        libc::EBUSY => Stays::Busy,
        libc::EINVAL | libc::EFAULT => Stays::Fixed,
        libc::ENOENT => Stays::Absent,
        _ => return stay.extend(all.map(|at| (at, Stays::Again))),
    };
    stay.push((job.at, stays));
}

/// What a move returned (0 or an error number), and the pages it did.
#[derive(Debug, Clone, Copy)]
struct Outcome {
    error: i32,
    done: usize,
}

/// Bytes of a request to move.
const REQUEST: usize = size_of::<uffdio_move>();

fn words(request: &uffdio_move) -> [u64; REQUEST / 8] {
    [request.dst, request.src, request.len, request.mode, request.move_ as u64]
}

/// Pages in order as runs of neighbours.
fn runs(pages: &[PageNo]) -> Vec<Job> {
    let mut jobs: Vec<Job> = Vec::new();
    for (at, &page) in pages.iter().enumerate() {
        match jobs.last_mut() {
            Some(job) if job.from.end == page => job.from.end += 1,
            _ => {
                let from = page..page + 1;
                jobs.push(Job { from, at, into: 0, tries: 0, looked_up: false });
            }
        }
    }
    jobs
}
