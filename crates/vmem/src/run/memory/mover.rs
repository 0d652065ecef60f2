//! Takes pages out of an address space, in batches: the helper moves them (`UFFDIO_MOVE`, atomic
//! for each page) into its staging, from where they are read, and drops them with the next batch.
//!
//! The destination of a move must be registered. The staging is that only while pages are moved: so
//! the helper, which empties it, and the evictor, which reads it, never wait for a message to be
//! read, whatever is missing there.
//!
//! - M1: the staging is emptied before a batch. Only moves fill it after that, or the kernel does,
//!   with zeros, for a program that locks all its memory. The kernel may take a page from it that
//!   the program has given up by `MADV_FREE`; it is read as zeros.
//! - M2: so a page has left whose slot holds anything but zeros, whatever the kernel said of its
//!   move. Linux 6.18 does not report all that it moved: where a page changes at that very moment,
//!   it tries again, moves more, and then says `EEXIST`, or fewer than it was
//!   ([`Uffd::take_whole`]). Of zeros that left so nothing is lost: the next fault brings them.

use std::io;
use std::ops::Range;

use linux_raw_sys::general::{uffdio_move, uffdio_register};

use super::access::Access;
use crate::page::{PAGE, is_zero};
use crate::run::core::ranges::{PageNo, Pages, bytes_of, pages_of};
use crate::run::link::{Call, Inside};
use crate::sys::map::{DONTNEED_LOCKED, POPULATE_WRITE};
use crate::sys::uffd::Uffd;

/// Pages of one batch, at most. The lock of the space is held for so long: some 60 microseconds.
pub(crate) const BATCH_MAX: usize = 128;
/// Tries of a move that says "again" without progress.
const TRIES: u8 = 2;
/// Where in the arguments the staging itself is described, and behind it the spare page.
const STAGING_REQUEST: usize = 12 << 10;
const SPARE_REQUEST: usize = STAGING_REQUEST + size_of::<uffdio_register>();

/// What became of a page that was to be moved out, unless its bytes are at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stays {
    /// It is still there: a change that is not read yet, or the kernel was at work with it.
    Again,
    /// It is shared with another process since a fork, or pinned.
    Busy,
    /// It cannot be moved: its mapping is not plain writable memory.
    Fixed,
    /// There is no such page.
    Absent,
}

/// What a batch brought.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    /// Pages that are out.
    pub pages: Vec<PageNo>,
    /// Their bytes.
    pub bytes: Vec<u8>,
    /// The others.
    pub stay: Vec<(PageNo, Stays)>,
}

/// Moves pages out of one address space.
pub(crate) struct Mover {
    inside: Box<dyn Inside>,
    /// Number of the userfaultfd in the helper.
    number: u64,
    staging: Range<usize>,
    arguments: usize,
    /// Whether pages lie in the staging.
    dirty: bool,
}

/// Pages to move, and where in the half they go.
#[derive(Debug, Clone)]
struct Job {
    from: Pages,
    at: usize,
    tries: u8,
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

impl Mover {
    /// Returns a mover whose staging is empty. The last page of `staging` is spare: it stays
    /// registered.
    ///
    /// # Errors
    /// The helper is gone.
    pub(crate) fn new(
        mut inside: Box<dyn Inside>,
        number: u64,
        staging: Range<usize>,
        arguments: usize,
    ) -> io::Result<Self> {
        let spare = staging.end - PAGE..staging.end;
        let staging = staging.start..spare.start;
        for (at, range) in [(STAGING_REQUEST, &staging), (SPARE_REQUEST, &spare)] {
            let request = Uffd::register_request(range);
            let words = [request.range.start, request.range.len, request.mode, request.ioctls];
            inside.write(arguments + at, &words.map(u64::to_ne_bytes).concat())?;
        }
        let mut mover = Self { inside, number, staging, arguments, dirty: true };
        mover.clean()?;
        let register = mover.control(Uffd::REGISTER_CODE, SPARE_REQUEST);
        let mut result = [0];
        mover.inside.call(&[register], &mut result)?;
        if result[0] < 0 {
            return Err(io::Error::from_raw_os_error(-result[0] as i32));
        }
        Ok(mover)
    }

    /// Moves out pages, at most [`BATCH_MAX`]; what it brings is added to `moved`. Under the lock
    /// of the space. `own`: they were made the space's own; else one that is busy stands for its
    /// neighbours.
    ///
    /// # Errors
    /// The helper or the address space is gone, or the helper is late: nothing is known of the
    /// pages before [`salvage`](Self::salvage).
    pub(crate) fn take(
        &mut self,
        pages: &[PageNo],
        own: bool,
        moved: &mut Moved,
    ) -> io::Result<()> {
        assert!(pages.len() <= BATCH_MAX);
        let mut jobs = runs(pages);
        let mut stay = Vec::new();
        let mut drop_before = std::mem::replace(&mut self.dirty, true);
        while !jobs.is_empty() {
            let results = self.make_moves(&jobs, std::mem::take(&mut drop_before))?;
            let mut again = Vec::new();
            for (job, result) in jobs.into_iter().zip(results) {
                judge(job, result, own, &mut again, &mut stay);
            }
            jobs = again;
        }
        let stays = |at: &usize| stay.iter().any(|(stays, _)| stays == at);
        let out: Vec<_> = (0..pages.len()).filter(|at| !stays(at)).collect();
        for part in out.chunk_by(|at, next| at + 1 == *next) {
            let start = moved.bytes.len();
            moved.bytes.resize(start + part.len() * PAGE, 0);
            self.inside.read(self.staging.start + part[0] * PAGE, &mut moved.bytes[start..])?;
        }
        moved.pages.extend(out.into_iter().map(|at| pages[at]));
        for (at, why) in stay {
            let end = moved.bytes.len();
            moved.bytes.resize(end + PAGE, 0);
            self.inside.read(self.staging.start + at * PAGE, &mut moved.bytes[end..])?;
            if is_zero(&moved.bytes[end..]) {
                moved.bytes.truncate(end);
                moved.stay.push((pages[at], why));
            } else {
                // M2.
                moved.pages.push(pages[at]);
            }
        }
        Ok(())
    }

    /// After [`take`](Self::take) has failed and the helper has ended, so that nothing moves any
    /// more: brings what the batch had moved, read from another process of the space. What is not
    /// found has stayed, or was zeros (M2), and is to be tried again.
    ///
    /// # Errors
    /// The staging cannot be read, nor can the space.
    pub(crate) fn salvage(
        &self,
        access: &Access,
        pages: &[PageNo],
        moved: &mut Moved,
        mut read: impl FnMut(usize, &mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        moved.pages.clear();
        moved.bytes.clear();
        moved.stay.clear();
        // It may be registered still, and whoever reads what is missing there would wait.
        access.unregister(&pages_of(&self.staging))?;
        for (at, &page) in pages.iter().enumerate() {
            let end = moved.bytes.len();
            moved.bytes.resize(end + PAGE, 0);
            read(self.staging.start + at * PAGE, &mut moved.bytes[end..])?;
            if is_zero(&moved.bytes[end..]) {
                moved.bytes.truncate(end);
                moved.stay.push((page, Stays::Again));
            } else {
                moved.pages.push(page);
            }
        }
        Ok(())
    }

    /// Makes pages the space's own that are shared since a fork. Without the lock of the space:
    /// a page that went meanwhile is asked for like any other.
    ///
    /// # Errors
    /// The helper is gone.
    pub(crate) fn make_own(&mut self, pages: &[PageNo]) -> io::Result<()> {
        let calls =
            runs(pages).into_iter().map(|job| madvise(&bytes_of(&job.from), POPULATE_WRITE));
        let calls: Vec<_> = calls.collect();
        self.inside.call(&calls, &mut vec![0; calls.len()])
    }

    /// Returns whether pages lie in the staging.
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// Drops what lies in the staging.
    ///
    /// # Errors
    /// The helper is gone.
    pub(crate) fn clean(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.dirty) {
            self.inside.call(&[self.drop_call()], &mut [0])?;
        }
        Ok(())
    }

    /// Also drops what is locked, if the program has locked all its memory.
    fn drop_call(&self) -> Call {
        madvise(&self.staging, DONTNEED_LOCKED)
    }

    /// A call of the userfaultfd whose argument lies there among the arguments.
    fn control(&self, code: u64, argument: usize) -> Call {
        let argument = (self.arguments + argument) as u64;
        let args = [self.number, code, argument, 0, 0, 0];
        Call { number: libc::SYS_ioctl as u64, args }
    }

    /// Moves pages. Returns what each move returned and did.
    fn make_moves(&mut self, jobs: &[Job], drop_before: bool) -> io::Result<Vec<Outcome>> {
        let mut calls = Vec::with_capacity(jobs.len() + 3);
        if drop_before {
            calls.push(self.drop_call());
        }
        calls.push(self.control(Uffd::REGISTER_CODE, STAGING_REQUEST));
        let moves = calls.len()..calls.len() + jobs.len();
        let mut requests = Vec::with_capacity(jobs.len() * REQUEST);
        for (at, job) in jobs.iter().enumerate() {
            let to = self.staging.start + job.at * PAGE;
            let request = Uffd::move_request(to, &bytes_of(&job.from));
            requests.extend(words(&request).into_iter().flat_map(u64::to_ne_bytes));
            calls.push(self.control(Uffd::MOVE_CODE, at * REQUEST));
        }
        calls.push(self.control(Uffd::UNREGISTER_CODE, STAGING_REQUEST));
        self.inside.write(self.arguments, &requests)?;
        let mut results = vec![0; calls.len()];
        self.inside.call(&calls, &mut results)?;
        let results = &results[moves];
        if results.iter().any(|&result| result < 0) {
            self.inside.read(self.arguments, &mut requests)?;
        }
        let outcomes = results.iter().zip(requests.chunks(REQUEST)).map(|(&result, request)| {
            let word = request[REQUEST - 8..].try_into().expect("8 bytes");
            // After an error without progress it holds that error, which is negative.
            let done = usize::try_from(i64::from_ne_bytes(word)).unwrap_or(0) / PAGE;
            Outcome { error: if result < 0 { -result as i32 } else { 0 }, done }
        });
        Ok(outcomes.collect())
    }
}

/// Sorts what a job did not do into what is tried again, and pages that stay, by where they would
/// lie in the staging.
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

/// Bytes of a request.
const REQUEST: usize = size_of::<uffdio_move>();

fn words(request: &uffdio_move) -> [u64; REQUEST / 8] {
    [request.dst, request.src, request.len, request.mode, request.move_ as u64]
}

fn madvise(range: &Range<usize>, advice: libc::c_int) -> Call {
    let args = [range.start as u64, range.len() as u64, advice as u64, 0, 0, 0];
    Call { number: libc::SYS_madvise as u64, args }
}

/// Pages in order as runs of neighbours.
fn runs(pages: &[PageNo]) -> Vec<Job> {
    let mut jobs: Vec<Job> = Vec::new();
    for (at, &page) in pages.iter().enumerate() {
        match jobs.last_mut() {
            Some(job) if job.from.end == page => job.from.end += 1,
            _ => jobs.push(Job { from: page..page + 1, at, tries: 0 }),
        }
    }
    jobs
}
