//! The process that makes the calls.

use std::hint::black_box;
use std::io::{Read as _, Write};
use std::process::Command;
use std::time::{Duration, Instant};

use memmap2::MmapMut;
use zfold_uffd::advice::{discard, page_out};

use super::job::{Done, Job, NAME, PIECE_BYTES};
use crate::experiment::Error;
use crate::experiment::content::PAGE_BYTES;
use crate::experiment::system::again;
use crate::pageout::memory::{resident_pages, small_pages};

/// How long a manager has to notice that there is much memory.
const REST: Duration = Duration::from_millis(200);

/// Lets the heap of a command grow and shrink by `brk` with every piece.
pub(super) fn with_plain_heap(command: &mut Command) -> &mut Command {
    const MALLOC: &str = "glibc.malloc";
    let settings = ["top_pad=0", "trim_threshold=65536", "mmap_threshold=1048576"];
    let settings = settings.map(|setting| format!("{MALLOC}.{setting}"));
    command.env("GLIBC_TUNABLES", settings.join(":"))
}

/// Does the job of the process: `job` is the argument of the hidden command that [`super::run`]
/// starts.
///
/// # Errors
/// The job is not one, or a call fails.
pub fn work(job: &str, output: &mut dyn Write) -> Result<(), Error> {
    let done = measure(&again::job(job)?)?;
    writeln!(output, "{}", again::line(&done))?;
    Ok(output.flush()?)
}

fn measure(job: &Job) -> Result<Done, Error> {
    // Full memory first: what is closed later would be closed while the clock runs.
    let mut full = Full::new(job.pieces)?;
    std::thread::sleep(REST);
    let away = full.page_out()?;
    let mut times = Vec::new();
    let mut note = |metric: &str, time: Duration, calls: usize| {
        times.push((metric.to_owned(), time.as_secs_f64() * 1e6 / calls as f64));
    };
    note("brk", heap(job.calls)?, job.calls);
    note("mmap and munmap", mappings(job.calls)?, job.calls);
    note("madvise", discards(job.calls)?, job.calls);
    let Full { heap, mappings, mut region } = full;
    // From the end of the heap, which shrinks then.
    let shrinks = timed(|| {
        heap.into_iter().rev().for_each(drop);
        Ok(())
    })?;
    note("brk that shrinks full memory", shrinks, job.pieces);
    let unmaps = timed(|| {
        drop(mappings);
        Ok(())
    })?;
    note("munmap of full memory", unmaps, job.pieces);
    let discards = timed(|| Ok(region.chunks_exact_mut(PIECE_BYTES).try_for_each(discard)?))?;
    note("madvise of full memory", discards, job.pieces);
    if let Some(at) = region.iter().position(|byte| *byte != 0) {
        return Err(Error::WrongBytes { experiment: NAME, what: format!("byte {at}") });
    }
    note("fork, exec and wait", programs(job.starts)?, job.starts);
    Ok(Done { times, away })
}

/// Returns how long something takes.
fn timed(work: impl FnOnce() -> Result<(), Error>) -> Result<Duration, Error> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}

/// Bytes that the list of the mappings of this process takes at most.
const MAPS_MAX: usize = 256 << 10;

/// Returns where the heap ends. `maps` has room for the list: what is asked of the heap to look at
/// it would be in the way.
fn end_of_heap(maps: &mut String) -> Result<usize, Error> {
    maps.clear();
    std::fs::File::open("/proc/self/maps")?.read_to_string(maps)?;
    // It may be several mappings.
    let heap = maps.lines().rfind(|line| line.ends_with("[heap]"));
    let end = heap.and_then(|line| usize::from_str_radix(line.split(['-', ' ']).nth(1)?, 16).ok());
    end.ok_or_else(|| Error::Other("the process has no heap".to_owned()))
}

/// Pieces that may lie in holes of the heap.
const HOLES_MAX: usize = 64;

/// Lets the heap grow and shrink.
fn heap(calls: usize) -> Result<Duration, Error> {
    let piece = || black_box(Vec::<u8>::with_capacity(PIECE_BYTES));
    // Holes in the heap are filled first: what lies in one makes it neither grow nor shrink.
    let mut held = Vec::with_capacity(HOLES_MAX);
    let mut maps = String::with_capacity(MAPS_MAX);
    let shrinks = loop {
        let (before, one) = (end_of_heap(&mut maps)?, piece());
        let grown = end_of_heap(&mut maps)?;
        if grown >= before + PIECE_BYTES / 2 {
            drop(one);
            break end_of_heap(&mut maps)? < grown;
        }
        held.push(one);
        if held.len() == HOLES_MAX {
            break false;
        }
    };
    if !shrinks {
        return Err(Error::Other("the C library does not give memory back by brk".to_owned()));
    }
    timed(|| {
        for _ in 0..calls {
            drop(piece());
        }
        Ok(())
    })
}

/// Maps and unmaps.
fn mappings(calls: usize) -> Result<Duration, Error> {
    timed(|| {
        for _ in 0..calls {
            drop(black_box(MmapMut::map_anon(PIECE_BYTES)?));
        }
        Ok(())
    })
}

/// Writes to a page and gives its piece up.
fn discards(calls: usize) -> Result<Duration, Error> {
    let mut piece = MmapMut::map_anon(PIECE_BYTES)?;
    timed(|| {
        for _ in 0..calls {
            piece[PAGE_BYTES] = 1;
            discard(&mut piece)?;
        }
        Ok(())
    })
}

/// Starts programs by fork and exec, and waits for them.
fn programs(starts: usize) -> Result<Duration, Error> {
    // A shell forks for what is in brackets; starting one from here would not copy the memory.
    let script = "i=0; while [ $i -lt $1 ]; do (exec true); i=$((i+1)); done";
    timed(|| {
        let status = Command::new("sh").args(["-c", script, "sh", &starts.to_string()]).status()?;
        if status.success() { Ok(()) } else { Err(Error::Other(format!("sh: {status}"))) }
    })
}

/// Memory of distinct pages.
struct Full {
    heap: Vec<Vec<u8>>,
    mappings: Vec<MmapMut>,
    region: MmapMut,
}

impl Full {
    fn new(pieces: usize) -> Result<Self, Error> {
        let mut region = small_pages(pieces * PIECE_BYTES)?;
        let mut mappings = Vec::with_capacity(pieces);
        let mut heap = Vec::with_capacity(pieces);
        fill(&mut region, 0);
        for piece in 1..=pieces {
            let mut mapping = small_pages(PIECE_BYTES)?;
            fill(&mut mapping, piece);
            mappings.push(mapping);
        }
        for piece in 1..=pieces {
            let mut bytes = vec![0; PIECE_BYTES];
            fill(&mut bytes, pieces + piece);
            heap.push(bytes);
        }
        Ok(Self { heap, mappings, region })
    }

    /// Asks that all leaves; returns the share that has left.
    fn page_out(&mut self) -> Result<f64, Error> {
        let heap = self.heap.iter().map(Vec::as_slice);
        let pieces = heap.chain(self.mappings.iter().map(|map| &map[..])).chain([&self.region[..]]);
        let (mut pages, mut resident) = (0, 0);
        for piece in pieces {
            page_out(piece)?;
            let address = piece.as_ptr().addr().next_multiple_of(PAGE_BYTES);
            let whole = (piece.as_ptr().addr() + piece.len() - address) / PAGE_BYTES;
            pages += whole;
            resident += resident_pages(address, whole)?;
        }
        Ok(1.0 - resident as f64 / pages as f64)
    }
}

/// Fills pages so that no two are equal.
fn fill(bytes: &mut [u8], piece: usize) {
    for (page, bytes) in bytes.chunks_mut(PAGE_BYTES).enumerate() {
        for (at, line) in bytes.chunks_mut(64).enumerate() {
            let number = ((piece << 32) + (page << 8) + at + 1) as u64;
            line[..8].copy_from_slice(&number.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_pages_are_equal() {
        let mut bytes = vec![0; 4 * PAGE_BYTES];
        fill(&mut bytes[..2 * PAGE_BYTES], 1);
        fill(&mut bytes[2 * PAGE_BYTES..], 2);
        let pages: std::collections::BTreeSet<_> = bytes.chunks(PAGE_BYTES).collect();
        assert_eq!(pages.len(), 4);
    }
}
