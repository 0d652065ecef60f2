//! The processes of the workload: one leads, the others work on their memory and wait for each
//! other before each step.
//!
//! A worker writes a line when it is ready for the next step and waits for one before it takes it;
//! its last line is its answer. Each page is one of the captures with a stamp of its own, so that
//! no two are equal; whatever is read is compared in full.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use zfold_compare::input::PageSet;
use zfold_compare::rng::{SplitMix64, Xorshift64};

use super::bench::NAME;
use super::job::{Answer, Done, Job, Kind, Role, Work};
use super::memory::{Mapping, Memory, region, resident_pages};
use crate::experiment::Error;
use crate::experiment::content::{PAGE_BYTES, verify};
use crate::experiment::system::again::{self, line};

/// The line of a worker that waits for the others.
const READY: &str = "ready";
/// An access that takes longer than this was a fault.
const FAULT_MIN: Duration = Duration::from_micros(1);
/// Pages that have not left for so long stay.
const REST: Duration = Duration::from_millis(200);
/// How often to look whether they have.
const LOOK: Duration = Duration::from_millis(1);
/// One page in this many of the captures is used: the workload should be small beside its memory.
const THINNING: usize = 4;
/// Where the stamp lies in a page.
const STAMP_AT: usize = 2048;

/// Does the job of a process of the workload: `job` is the argument of the hidden command that
/// [`super::run`] starts.
///
/// # Errors
/// The job is not one, or the leader is gone; an error in the work is an answer.
pub fn work(job: &str, input: &mut dyn BufRead, output: &mut dyn Write) -> Result<(), Error> {
    let job: Job = again::job(job)?;
    let result = match job.role {
        Role::Leader(workers) => lead(&job, workers),
        Role::Worker(number) => Worker { job: &job, number, input, output }.run(),
    };
    writeln!(output, "{}", line(&Answer::from(result)))?;
    Ok(output.flush()?)
}

/// Starts the workers and lets them do their steps together.
fn lead(job: &Job, workers: u32) -> Result<Done, Error> {
    let program = std::env::current_exe()?;
    let start =
        |number| Follower::start(&program, &Job { role: Role::Worker(number), ..job.clone() });
    let mut followers = (0..workers).map(start).collect::<Result<Vec<_>, _>>()?;
    loop {
        let lines = followers.iter_mut().map(Follower::next).collect::<Result<Vec<_>, _>>()?;
        if lines.iter().any(|line| line != READY) {
            return sum_up(&lines);
        }
        followers.iter_mut().try_for_each(Follower::go)?;
    }
}

/// Returns what all workers measured together, from their last lines.
fn sum_up(lines: &[String]) -> Result<Done, Error> {
    let mut sum = Done::default();
    for line in lines.iter().filter(|line| *line != READY) {
        match again::answer(line) {
            Some(Answer::Done(done)) => sum.add(done),
            Some(Answer::Wrong(what)) => return Err(Error::WrongBytes { experiment: NAME, what }),
            Some(Answer::Failed(reason)) => return Err(Error::Other(reason)),
            None => return Err(Error::Other(format!("a process of the workload said: {line}"))),
        }
    }
    Ok(sum)
}

/// A worker, seen by its leader. Dropping it ends it.
struct Follower {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Follower {
    fn start(program: &Path, job: &Job) -> Result<Self, Error> {
        let mut command = Command::new(program);
        command
            .args(again::command(NAME))
            .arg(line(job))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let input = process.stdin.take().expect("it was asked for");
        let output = BufReader::new(process.stdout.take().expect("it was asked for"));
        Ok(Self { process, input, output })
    }

    /// Returns the next line.
    fn next(&mut self) -> Result<String, Error> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        if line.is_empty() {
            let status = self.process.wait()?;
            return Err(Error::Other(format!("a process of the workload ended early: {status}")));
        }
        Ok(line.trim_end().to_owned())
    }

    fn go(&mut self) -> Result<(), Error> {
        Ok(self.input.write_all(b"\n")?)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        // It has ended by itself, unless the work was given up.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// One of the processes that work.
struct Worker<'a> {
    job: &'a Job,
    number: u32,
    input: &'a mut dyn BufRead,
    output: &'a mut dyn Write,
}

impl Worker<'_> {
    fn run(mut self) -> Result<Done, Error> {
        let pages = Pages::new(self.number);
        let mut memory: Box<dyn Memory> = match self.job.memory {
            Kind::Mapping => Box::new(Mapping::new(self.job.pages)?),
            Kind::Region { resident_bytes } => Box::new(region(self.job.pages, resident_bytes)?),
        };
        for page in 0..self.job.pages {
            memory.write(page, &pages.page(page, 0));
        }
        self.wait()?;
        match self.job.work {
            Work::Unmap { out } => self.unmap(memory, &pages, out),
            Work::Access { times } => self.access(&mut *memory, &pages, times),
        }
    }

    /// Waits until all processes have come as far.
    fn wait(&mut self) -> Result<(), Error> {
        writeln!(self.output, "{READY}")?;
        self.output.flush()?;
        match self.input.read_line(&mut String::new())? {
            0 => Err(Error::Other("the process that leads the workload is gone".to_owned())),
            _ => Ok(()),
        }
    }

    fn unmap(
        &mut self,
        mut memory: Box<dyn Memory>,
        pages: &Pages,
        out: bool,
    ) -> Result<Done, Error> {
        let mut done = Done::default();
        if out {
            // A manager has to notice first how much memory there is.
            std::thread::sleep(REST);
            let (time, left_pages) = page_out(&mut *memory, self.job.pages)?;
            done.page_out.push(time.as_secs_f64());
            done.left_pages = left_pages;
        }
        self.wait()?;
        let seed = self.job.seed.wrapping_add(self.number.into());
        let mut order = Xorshift64::new(seed).permutation(self.job.pages);
        order.truncate(self.job.pages.div_ceil(4));
        for page in order {
            let time = touch(&*memory, page);
            if out {
                done.faults.push(time.as_nanos() as u64);
            }
            check(&*memory, page, &pages.page(page, 0))?;
        }
        self.wait()?;
        let start = Instant::now();
        drop(memory);
        done.unmap.push(start.elapsed().as_secs_f64());
        Ok(done)
    }

    fn access(
        &mut self,
        memory: &mut dyn Memory,
        pages: &Pages,
        times: usize,
    ) -> Result<Done, Error> {
        let mut done = Done::default();
        let mut versions = vec![0; self.job.pages];
        let mut rng = SplitMix64::new(self.job.seed.wrapping_add(self.number.into()));
        for _ in 0..times {
            let page = rng.below(versions.len() as u64) as usize;
            let time = touch(memory, page);
            if time > FAULT_MIN {
                done.faults.push(time.as_nanos() as u64);
            }
            check(memory, page, &pages.page(page, versions[page]))?;
            versions[page] += 1;
            memory.write(page, &pages.page(page, versions[page]));
        }
        for (page, version) in versions.into_iter().enumerate() {
            check(memory, page, &pages.page(page, version))?;
        }
        Ok(done)
    }
}

/// Pages all out. Returns how long that takes, and how many of the pages have left then.
///
/// Who is asked need not wait until they have, so that their number is looked at until it rests.
fn page_out(memory: &mut dyn Memory, pages: usize) -> Result<(Duration, usize), Error> {
    let start = Instant::now();
    memory.page_out()?;
    let mut time = start.elapsed();
    let mut resident = resident_pages(memory.address(), pages)?;
    while resident > pages / 100 && start.elapsed() < time + REST {
        std::thread::sleep(LOOK);
        let now = resident_pages(memory.address(), pages)?;
        if now < resident {
            (time, resident) = (start.elapsed(), now);
        }
    }
    Ok((time, pages - resident))
}

/// Returns how long it takes until a byte of a page has been read.
fn touch(memory: &dyn Memory, page: usize) -> Duration {
    let start = Instant::now();
    memory.touch(page);
    start.elapsed()
}

/// Reads a page and compares every byte.
fn check(memory: &dyn Memory, page: usize, expected: &[u8; PAGE_BYTES]) -> Result<(), Error> {
    verify(NAME, expected, &memory.read(page), || format!("page {page}"))
}

/// The contents of a worker's pages.
struct Pages {
    number: u32,
    captures: Vec<[u8; PAGE_BYTES]>,
}

impl Pages {
    fn new(number: u32) -> Self {
        let sets: Vec<_> = PageSet::builtin(PAGE_BYTES).collect();
        let pages = sets.iter().flat_map(PageSet::pages).step_by(THINNING);
        let captures = pages.map(|page| page.try_into().expect("a page has so many bytes"));
        Self { number, captures: captures.collect() }
    }

    /// Returns what a page holds in a version.
    fn page(&self, page: usize, version: u32) -> [u8; PAGE_BYTES] {
        // Prime steps, so that neighbours have little in common and workers differ.
        let place = (page * 7 + self.number as usize * 977) % self.captures.len();
        let mut bytes = self.captures[place];
        let stamps = [page as u32, self.number, version];
        for (at, stamp) in stamps.into_iter().enumerate() {
            for (byte, mark) in bytes[STAMP_AT + at * 4..].iter_mut().zip(stamp.to_le_bytes()) {
                *byte ^= mark;
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    fn job(work: Work) -> Job {
        Job { memory: Kind::Mapping, pages: 64, work, seed: 1, role: Role::Worker(3) }
    }

    /// Returns the messages of a worker that continues as often as `input` has lines.
    fn said(job: &Job, mut input: &[u8]) -> Vec<String> {
        let mut output = Vec::new();
        work(&line(job), &mut input, &mut output).unwrap();
        String::from_utf8(output).unwrap().lines().map(str::to_owned).collect()
    }

    fn answer(lines: &[String]) -> Answer {
        serde_json::from_str(lines.last().unwrap()).unwrap()
    }

    #[test]
    fn a_worker_waits_before_each_step_and_answers() {
        let lines = said(&job(Work::Unmap { out: true }), b"\n\n\n");
        assert_eq!((lines.len(), &*lines[0], &*lines[2]), (4, READY, READY));
        let Answer::Done(done) = answer(&lines) else { panic!("{lines:?}") };
        assert_eq!((done.page_out.len(), done.faults.len(), done.unmap.len()), (1, 16, 1));
        let lines = said(&job(Work::Unmap { out: false }), b"\n\n\n");
        let Answer::Done(done) = answer(&lines) else { panic!("{lines:?}") };
        assert_eq!((done.page_out.len(), done.faults.len(), done.unmap.len()), (0, 0, 1));
        let lines = said(&job(Work::Access { times: 500 }), b"\n");
        let Answer::Done(done) = answer(&lines) else { panic!("{lines:?}") };
        assert!(lines.len() == 2 && done.faults.len() <= 500);
    }

    #[test]
    fn a_worker_ends_with_its_leader() {
        let lines = said(&job(Work::Unmap { out: false }), b"\n");
        let gone = "the process that leads the workload is gone".to_owned();
        assert_eq!(answer(&lines), Answer::Failed(gone));
    }

    #[test]
    fn no_two_pages_are_equal() {
        let (one, other) = (Pages::new(0), Pages::new(1));
        let len = one.captures.len();
        let mut seen: Vec<_> = (0..2 * len).map(|page| one.page(page, 0)).collect();
        seen.extend((0..len).map(|page| one.page(page, 1)));
        seen.extend((0..len).map(|page| other.page(page, 0)));
        let all = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), all);
    }

    #[test]
    fn a_wrong_byte_is_noticed() {
        let pages = Pages::new(0);
        let mut memory = Mapping::new(2).unwrap();
        memory.write(1, &pages.page(1, 0));
        check(&memory, 1, &pages.page(1, 0)).unwrap();
        let error = check(&memory, 1, &pages.page(1, 1)).unwrap_err();
        assert_eq!(error.to_string(), "pageout: wrong bytes came back: page 1");
    }

    #[test]
    fn the_worst_answer_counts() {
        let done = line(&Answer::Done(Done { unmap: vec![1.0], ..Done::default() }));
        assert_eq!(sum_up(&[done.clone(), done.clone()]).unwrap().unmap, [1.0, 1.0]);
        let wrong = line(&Answer::Wrong("page 3".to_owned()));
        let error = sum_up(&[READY.to_owned(), done.clone(), wrong]).unwrap_err();
        assert!(matches!(error, Error::WrongBytes { .. }), "{error}");
        let error = sum_up(&[done, "gibberish".to_owned()]).unwrap_err();
        assert_eq!(error.to_string(), "a process of the workload said: gibberish");
    }
}
