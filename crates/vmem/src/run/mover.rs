//! Takes pages out of an address space, in batches: the helper moves them (`UFFDIO_MOVE`, atomic
//! for each page) into its staging, from where they are read, and drops them with the next
//! batch. Two halves of the staging are used in turn, so that this costs no call of its own.

use std::io;
use std::ops::Range;

use linux_raw_sys::general::uffdio_move;

use super::chance::BATCH;
use super::memory::{Call, Inside};
use super::ranges::{PAGE, PageNo, Pages, bytes_of};
use crate::sys::remote;
use crate::sys::uffd::Uffd;

/// Pages of one batch, at most: each may need a call, and one drops the batch before.
const BATCH_MAX: usize = if BATCH < Call::AT_ONCE { BATCH } else { Call::AT_ONCE - 1 };
/// Tries of a move that says "again" without progress.
const TRIES: u8 = 3;
/// `MADV_POPULATE_WRITE`: makes pages writable, and so the space's own if a fork shares them.
const POPULATE_WRITE: u64 = 23;

/// What became of a page that was to be moved out, unless its bytes are at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stays {
    /// It is still there: the kernel was at work with it.
    Again,
    /// It cannot be moved: pinned, or its mapping is not plain writable memory.
    Fixed,
    /// There is no such page.
    Absent,
}

/// What a batch brought.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    /// Pages that are out, in order.
    pub pages: Vec<PageNo>,
    /// Their bytes. A page that was missing is zeros.
    pub bytes: Vec<u8>,
    /// The others.
    pub stay: Vec<(PageNo, Stays)>,
}

/// Moves pages out of one address space.
pub(crate) struct Mover {
    inside: Box<dyn Inside>,
    /// Number of the userfaultfd in the helper.
    number: i32,
    pid: i32,
    staging: Range<usize>,
    arguments: usize,
    /// Which half is used next.
    half: usize,
    /// Whether pages lie in the half that was used last.
    dirty: bool,
}

/// Pages to move, and where in the half they go.
#[derive(Debug, Clone)]
struct Job {
    from: Pages,
    at: usize,
    tries: u8,
    /// They were made writable.
    populated: bool,
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
    /// Returns a mover with an empty staging.
    pub(crate) fn new(
        inside: Box<dyn Inside>,
        number: i32,
        pid: i32,
        staging: Range<usize>,
        arguments: usize,
    ) -> Self {
        Self { inside, number, pid, staging, arguments, half: 0, dirty: false }
    }

    /// Returns how many pages a batch may have.
    pub(crate) fn batch_max(&self) -> usize {
        BATCH_MAX.min(self.half_pages())
    }

    fn half_pages(&self) -> usize {
        self.staging.len() / PAGE / 2
    }

    fn half(&self, half: usize) -> Range<usize> {
        let start = self.staging.start + half * self.half_pages() * PAGE;
        start..start + self.half_pages() * PAGE
    }

    /// Moves out pages, in order and at most [`batch_max`](Self::batch_max); what it brings is
    /// added to `moved`.
    ///
    /// # Errors
    /// The helper or the address space is gone: nothing is known of the pages.
    pub(crate) fn take(&mut self, pages: &[PageNo], moved: &mut Moved) -> io::Result<()> {
        assert!(pages.len() <= self.batch_max());
        let mut jobs = runs(pages);
        let mut done = Vec::new();
        let mut drop_before = self.dirty.then(|| drop_call(&self.half(1 - self.half)));
        while !jobs.is_empty() {
            let rest = jobs.split_off(jobs.len().min(Call::AT_ONCE / 2));
            let results = self.make_calls(drop_before.take(), &jobs)?;
            let mut again = Vec::new();
            for (job, result) in jobs.into_iter().zip(results) {
                self.judge(job, result, &mut done, &mut again, &mut moved.stay);
            }
            again.extend(rest);
            jobs = again;
        }
        done.sort_by_key(|job: &Job| job.at);
        let half = self.half(self.half);
        for job in join(done) {
            let start = moved.bytes.len();
            moved.bytes.resize(start + job.from.len() * PAGE, 0);
            remote::read(self.pid, half.start + job.at * PAGE, &mut moved.bytes[start..])?;
        }
        let out = pages.iter().filter(|page| !moved.stay.iter().any(|(stays, _)| stays == *page));
        moved.pages.extend(out);
        self.half = 1 - self.half;
        self.dirty = true;
        Ok(())
    }

    /// Drops what lies in the staging.
    ///
    /// # Errors
    /// The helper is gone.
    pub(crate) fn clean(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.dirty) {
            let drop = drop_call(&self.half(1 - self.half));
            self.inside.call(&[drop], &mut [0])?;
        }
        Ok(())
    }

    /// Makes the calls of jobs: at most two for each. Returns what each move returned and did.
    fn make_calls(&mut self, first: Option<Call>, jobs: &[Job]) -> io::Result<Vec<Outcome>> {
        let mut calls = Vec::with_capacity(jobs.len() + 1);
        calls.extend(first);
        let mut moves = Vec::with_capacity(jobs.len());
        let half = self.half(self.half);
        let mut requests = Vec::with_capacity(jobs.len() * REQUEST);
        for (at, job) in jobs.iter().enumerate() {
            let range = bytes_of(&job.from);
            if job.populated && job.tries == 0 {
                calls.push(madvise(&range, POPULATE_WRITE));
            }
            let request = Uffd::move_request(half.start + job.at * PAGE, &range);
            requests.extend(words(&request).into_iter().flat_map(u64::to_ne_bytes));
            moves.push(calls.len());
            let argument = (self.arguments + at * REQUEST) as u64;
            let args = [self.number as u64, Uffd::MOVE_CODE, argument, 0, 0, 0];
            calls.push(Call { number: libc::SYS_ioctl as u64, args });
        }
        // SAFETY: this part of the helper's own mapping is for these arguments.
        unsafe { remote::write(self.pid, self.arguments, &requests) }?;
        let mut results = vec![0; calls.len()];
        for (calls, results) in calls.chunks(Call::AT_ONCE).zip(results.chunks_mut(Call::AT_ONCE)) {
            self.inside.call(calls, results)?;
        }
        let results: Vec<_> = moves.iter().map(|&at| results[at]).collect();
        if results.iter().any(|&result| result < 0) {
            remote::read(self.pid, self.arguments, &mut requests)?;
        }
        let outcomes = results.iter().zip(requests.chunks(REQUEST)).map(|(&result, request)| {
            let word = request[REQUEST - 8..].try_into().expect("8 bytes");
            // After an error without progress it holds that error, which is negative.
            let done = usize::try_from(i64::from_ne_bytes(word)).unwrap_or(0) / PAGE;
            Outcome { error: if result < 0 { -result as i32 } else { 0 }, done }
        });
        Ok(outcomes.collect())
    }

    /// Sorts a job into what is done, what is tried again, and pages that stay.
    fn judge(
        &self,
        mut job: Job,
        outcome: Outcome,
        done: &mut Vec<Job>,
        again: &mut Vec<Job>,
        stay: &mut Vec<(PageNo, Stays)>,
    ) {
        if outcome.error == 0 {
            done.push(job);
            return;
        }
        if outcome.done > 0 {
            let rest = job.split_off(outcome.done.min(job.from.len()));
            done.push(job);
            job = Job { tries: 1, ..rest };
            if !job.from.is_empty() {
                again.push(job);
            }
            return;
        }
        let first = job.from.start;
        match outcome.error {
            libc::EAGAIN if job.tries < TRIES => again.push(Job { tries: job.tries + 1, ..job }),
            libc::EBUSY if !job.populated => again.push(Job { populated: true, tries: 0, ..job }),
            libc::EBUSY => {
                stay.push((first, Stays::Fixed));
                let rest = Job { tries: 1, ..job.split_off(1) };
                again.extend(Some(rest).filter(|rest| !rest.from.is_empty()));
            }
            // Several mappings, perhaps: find the page.
            libc::EINVAL | libc::ENOENT if job.from.len() > 1 => {
                let rest = job.split_off(job.from.len() / 2);
                again.extend([job, rest]);
            }
            libc::EINVAL => stay.push((first, Stays::Fixed)),
            libc::ENOENT => stay.push((first, Stays::Absent)),
            _ => stay.extend(job.from.map(|page| (page, Stays::Again))),
        }
    }
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

fn madvise(range: &Range<usize>, advice: u64) -> Call {
    let args = [range.start as u64, range.len() as u64, advice, 0, 0, 0];
    Call { number: libc::SYS_madvise as u64, args }
}

fn drop_call(range: &Range<usize>) -> Call {
    madvise(range, libc::MADV_DONTNEED as u64)
}

/// Pages in order as runs of neighbours.
fn runs(pages: &[PageNo]) -> Vec<Job> {
    let mut jobs: Vec<Job> = Vec::new();
    for (at, &page) in pages.iter().enumerate() {
        match jobs.last_mut() {
            Some(job) if job.from.end == page => job.from.end += 1,
            _ => jobs.push(Job { from: page..page + 1, at, tries: 0, populated: false }),
        }
    }
    jobs
}

/// Joins jobs whose pages lie side by side in the staging, which is all that counts now.
fn join(jobs: Vec<Job>) -> Vec<Job> {
    let mut joined: Vec<Job> = Vec::new();
    for job in jobs {
        match joined.last_mut() {
            Some(last) if last.at + last.from.len() == job.at => last.from.end += job.from.len(),
            _ => joined.push(job),
        }
    }
    joined
}
