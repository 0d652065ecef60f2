//! The processes of the workload: one leads, the others work on their memory and wait for each
//! other before each step.
//!
//! The job of each is the last argument of the hidden command `zfold-lab process pageout JOB`, in
//! JSON. A worker writes a line when it is ready for the next step and waits for one before it
//! takes it; its last line is its answer. Each page is one of the captures with a stamp of its own,
//! so that no two are equal; whatever is read is compared in full.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::FileExt as _;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use memmap2::{Advice, MmapMut};
use serde::{Deserialize, Serialize};
use zfold_compare::input::PageSet;
use zfold_compare::rng::Xorshift64;
use zfold_region::{MemoryOptions, Region};

use crate::experiment::Error;
use crate::experiment::content::{PAGE_BYTES, verify};
use crate::experiment::system::child::Running;

/// Name of the experiment.
pub const NAME: &str = "pageout";

/// The line of a worker that waits for the others.
const READY: &str = "ready";
/// Pages that have not left for so long stay.
const REST: Duration = Duration::from_millis(200);
/// How often to look whether they have.
const LOOK: Duration = Duration::from_millis(1);
/// One page in this many of the captures is used: the workload should be small beside its memory.
const THINNING: usize = 4;
/// Where the stamp lies in a page.
const STAMP_AT: usize = 2048;

/// The job of a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) role: Role,
    /// Works on a `Region` of zfold, of which so many bytes may be resident, in the place of
    /// private anonymous memory.
    pub(super) region_bytes: Option<u64>,
    /// Pages of each process.
    pub(super) pages: usize,
    /// Whether all of them leave before a quarter is read and all are unmapped.
    pub(super) out: bool,
    /// Of all random choices.
    pub(super) seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Role {
    /// Starts this many others and has them do each step together.
    Leader(u32),
    /// One of those, by number from 0.
    Worker(u32),
}

impl Job {
    /// Returns the arguments of this program that make it do the job.
    pub(super) fn arguments(&self) -> [String; 3] {
        let job = serde_json::to_string(self).expect("plain data is JSON");
        ["process".to_owned(), NAME.to_owned(), job]
    }
}

/// The result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// All bytes were right.
    Done(Done),
    /// A byte came back wrong.
    Wrong(String),
    /// Something else went wrong.
    Failed(String),
}

impl Answer {
    /// Returns the measurements in a line.
    pub(super) fn read(line: &str) -> Result<Done, Error> {
        match serde_json::from_str(line.trim_end()) {
            Ok(Self::Done(done)) => Ok(done),
            Ok(Self::Wrong(what)) => Err(Error::WrongBytes { experiment: NAME, what }),
            Ok(Self::Failed(reason)) => Err(Error::Missing(reason)),
            Err(_) => Err(Error::Other(format!("a process of the workload said: {line}"))),
        }
    }
}

/// The measurements, of one process or of several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Done {
    /// Seconds that it took to page out, for each process.
    pub(super) page_out: Vec<f64>,
    /// Pages that left by that.
    pub(super) left_pages: usize,
    /// Nanoseconds of each access that faulted.
    pub(super) faults: Vec<u64>,
    /// Seconds that it took to unmap, for each process.
    pub(super) unmap: Vec<f64>,
}

/// Does the job of a process of the workload: `job` is the argument of the hidden command.
///
/// # Errors
/// The job is not one, or the leader is gone; an error in the work is an answer.
pub fn work(job: &str, input: &mut dyn BufRead, output: &mut dyn Write) -> Result<(), Error> {
    let job: Job = serde_json::from_str(job)
        .map_err(|_| Error::Other("this command is for the program itself only".to_owned()))?;
    let result = match job.role {
        Role::Leader(workers) => lead(&job, workers),
        Role::Worker(number) => Worker { job: &job, number, input, output }.run(),
    };
    let answer = match result {
        Ok(done) => Answer::Done(done),
        Err(Error::WrongBytes { what, .. }) => Answer::Wrong(what),
        Err(error) => Answer::Failed(error.to_string()),
    };
    writeln!(output, "{}", serde_json::to_string(&answer).expect("plain data is JSON"))?;
    Ok(output.flush()?)
}

/// Starts the workers and lets them do their steps together.
fn lead(job: &Job, workers: u32) -> Result<Done, Error> {
    let start = |number| Follower::start(&Job { role: Role::Worker(number), ..job.clone() });
    let mut followers = (0..workers).map(start).collect::<Result<Vec<_>, _>>()?;
    loop {
        let lines = followers.iter_mut().map(Follower::next).collect::<Result<Vec<_>, _>>()?;
        if lines.iter().any(|line| line != READY) {
            return sum_up(&lines);
        }
        followers.iter_mut().try_for_each(|follower| follower.input.write_all(b"\n"))?;
    }
}

/// Returns what all workers measured together, from their last lines.
fn sum_up(lines: &[String]) -> Result<Done, Error> {
    let mut sum = Done::default();
    for line in lines.iter().filter(|line| *line != READY) {
        let done = Answer::read(line)?;
        sum.page_out.extend(done.page_out);
        sum.left_pages += done.left_pages;
        sum.faults.extend(done.faults);
        sum.unmap.extend(done.unmap);
    }
    Ok(sum)
}

/// A worker, seen by its leader. Dropping it ends it.
struct Follower {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    _process: Running,
}

impl Follower {
    fn start(job: &Job) -> Result<Self, Error> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(job.arguments()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let input = process.stdin.take().expect("it was asked for");
        let output = BufReader::new(process.stdout.take().expect("it was asked for"));
        Ok(Self { input, output, _process: Running(process) })
    }

    /// Returns the next line.
    fn next(&mut self) -> Result<String, Error> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        if line.is_empty() {
            return Err(Error::Other("a process of the workload ended early".to_owned()));
        }
        Ok(line.trim_end().to_owned())
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
        let (pages, count) = (Pages::new(self.number), self.job.pages);
        let mut memory = Memory::new(count, self.job.region_bytes)?;
        for page in 0..count {
            memory.bytes_mut()[page * PAGE_BYTES..][..PAGE_BYTES]
                .copy_from_slice(&pages.page(page));
        }
        self.wait()?;
        let mut done = Done::default();
        if self.job.out {
            // A manager has to notice first how much memory there is.
            std::thread::sleep(REST);
            let (time, left_pages) = memory.page_out(count)?;
            done.page_out.push(time.as_secs_f64());
            done.left_pages = left_pages;
        }
        self.wait()?;
        let seed = self.job.seed.wrapping_add(self.number.into());
        let mut order = Xorshift64::new(seed).permutation(count);
        order.truncate(count.div_ceil(4));
        for page in order {
            let bytes = &memory.bytes()[page * PAGE_BYTES..][..PAGE_BYTES];
            let start = Instant::now();
            black_box(bytes[0]);
            if self.job.out {
                done.faults.push(start.elapsed().as_nanos() as u64);
            }
            verify(NAME, &pages.page(page), bytes, || format!("page {page}"))?;
        }
        self.wait()?;
        let start = Instant::now();
        drop(memory);
        done.unmap.push(start.elapsed().as_secs_f64());
        Ok(done)
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
}

/// Pages of memory. Dropping it unmaps them.
enum Memory {
    /// Private and anonymous, in pages of the smallest size.
    Mapping(MmapMut),
    Region(Region),
}

impl Memory {
    fn new(pages: usize, region_bytes: Option<u64>) -> io::Result<Self> {
        if let Some(resident_bytes) = region_bytes {
            let options = MemoryOptions::new(resident_bytes as usize);
            let region = Region::new(pages * PAGE_BYTES, &options);
            return Ok(Self::Region(region.map_err(io::Error::other)?));
        }
        let map = MmapMut::map_anon(pages * PAGE_BYTES)?;
        // Not every kernel has huge pages to refuse.
        let _ = map.advise(Advice::NoHugePage);
        Ok(Self::Mapping(map))
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapping(map) => map,
            Self::Region(region) => region.as_slice(),
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Mapping(map) => map,
            Self::Region(region) => region.as_mut_slice(),
        }
    }

    /// Pages all out. Returns how long that takes, and how many of the pages have left then.
    ///
    /// Who is asked need not wait until they have, so that their number is looked at until it
    /// rests.
    fn page_out(&mut self, pages: usize) -> io::Result<(Duration, usize)> {
        let start = Instant::now();
        match self {
            Self::Mapping(map) => zfold_uffd::page::page_out(map)?,
            Self::Region(region) => region.pageout(..).map_err(io::Error::other)?,
        }
        let mut time = start.elapsed();
        let mut resident = self.resident_pages(pages)?;
        while resident > pages / 100 && start.elapsed() < time + REST {
            std::thread::sleep(LOOK);
            let now = self.resident_pages(pages)?;
            if now < resident {
                (time, resident) = (start.elapsed(), now);
            }
        }
        Ok((time, pages - resident))
    }

    /// Returns how many of the pages are in RAM, as the process sees them.
    fn resident_pages(&self, pages: usize) -> io::Result<usize> {
        /// Bytes of an entry, of which the highest bit says that the page is there.
        const ENTRY: usize = 8;
        let mut entries = vec![0; pages * ENTRY];
        let at = self.bytes().as_ptr().addr() / PAGE_BYTES * ENTRY;
        File::open("/proc/self/pagemap")?.read_exact_at(&mut entries, at as u64)?;
        let last = entries.iter().skip(ENTRY - 1).step_by(ENTRY);
        Ok(last.filter(|&&byte| byte & 0x80 != 0).count())
    }
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

    /// Returns what a page holds.
    fn page(&self, page: usize) -> [u8; PAGE_BYTES] {
        // Prime steps, so that neighbours have little in common and workers differ.
        let place = (page * 7 + self.number as usize * 977) % self.captures.len();
        let mut bytes = self.captures[place];
        for (at, stamp) in [page as u32, self.number].into_iter().enumerate() {
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

    /// Returns the messages of a worker that continues as often as `input` has lines, and its
    /// answer.
    fn said(out: bool, mut input: &[u8]) -> (Vec<String>, Answer) {
        let job = Job { role: Role::Worker(3), region_bytes: None, pages: 64, out, seed: 1 };
        let [.., job] = job.arguments();
        let mut output = Vec::new();
        work(&job, &mut input, &mut output).unwrap();
        let lines: Vec<_> = String::from_utf8(output).unwrap().lines().map(str::to_owned).collect();
        let answer = serde_json::from_str(lines.last().unwrap()).unwrap();
        (lines, answer)
    }

    #[test]
    fn a_worker_waits_before_each_step_and_ends_with_its_leader() {
        for (out, counts) in [(true, (1, 16, 1)), (false, (0, 0, 1))] {
            let (lines, answer) = said(out, b"\n\n\n");
            assert_eq!((lines.len(), &*lines[0], &*lines[2]), (4, READY, READY));
            let Answer::Done(done) = answer else { panic!("{lines:?}") };
            assert_eq!((done.page_out.len(), done.faults.len(), done.unmap.len()), counts);
        }
        let gone = "the process that leads the workload is gone".to_owned();
        assert_eq!(said(false, b"\n").1, Answer::Failed(gone));
    }

    #[test]
    fn no_two_pages_are_equal() {
        let (one, other) = (Pages::new(0), Pages::new(1));
        let len = one.captures.len();
        let mut seen: Vec<_> = (0..2 * len).map(|page| one.page(page)).collect();
        seen.extend((0..len).map(|page| other.page(page)));
        let all = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), all);
    }

    #[test]
    fn pages_are_resident_when_they_have_been_written() {
        let mut memory = Memory::new(64, None).unwrap();
        assert_eq!(memory.resident_pages(64).unwrap(), 0);
        for page in [0, 7, 63] {
            memory.bytes_mut()[page * PAGE_BYTES] = 1;
        }
        assert_eq!(memory.resident_pages(64).unwrap(), 3);
    }

    #[test]
    fn answers_are_told_apart_and_the_worst_counts() {
        let text = |answer: Answer| serde_json::to_string(&answer).unwrap();
        let done = text(Answer::Done(Done { unmap: vec![1.0], ..Done::default() }));
        let wrong = text(Answer::Wrong("page 3".to_owned()));
        let failed = text(Answer::Failed("no rights".to_owned()));
        let sum = |last: &str| sum_up(&[READY.to_owned(), done.clone(), last.to_owned()]);
        assert_eq!(sum(&done).unwrap().unmap, [1.0, 1.0]);
        assert!(matches!(sum(&wrong), Err(Error::WrongBytes { what, .. }) if what == "page 3"));
        assert!(matches!(sum(&failed), Err(Error::Missing(reason)) if reason == "no rights"));
        let error = sum("gibberish").unwrap_err();
        assert_eq!(error.to_string(), "a process of the workload said: gibberish");
    }
}
