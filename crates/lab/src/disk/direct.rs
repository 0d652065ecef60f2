//! A store in this process against the kernel's zram: the same pages, in the same order, by two
//! threads.
//!
//! To the store a thread calls; to zram it makes a system call past the page cache, which is the
//! shortest way there. Pages are those of the built-in captures.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::time::Instant;

use rustix::fs::OFlags;
use zfold_compare::latency::Latency;
use zfold_compare::rng::SplitMix64;
use zfold_pool::{Allocator, PoolOptions};
use zfold_store::backing::AlignedBuffer;
use zfold_store::{CodecKind, Store, StoreOptions};

use super::bench::{Bench, NAME};
use crate::experiment::content::{Content, PAGE_BYTES, verify};
use crate::experiment::harness::turns::{Fault, Found, in_turns};
use crate::experiment::harness::{Samples, sized, together};
use crate::experiment::system::zram::Zram;
use crate::experiment::{Error, Progress};

/// The prefix of the metrics.
const SECTION: &str = "two threads";
const THREADS: u32 = 2;

/// The kernel comes first, as the base.
const KEEPERS: [Keeper; 2] = [Keeper::Zram, Keeper::Store];

/// The holder of the pages.
#[derive(Clone, Copy, Debug)]
enum Keeper {
    Zram,
    Store,
}

impl fmt::Display for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Zram => "zram lz4",
            Self::Store => "store lz4",
        })
    }
}

/// Runs the comparison.
///
/// # Errors
/// As [`in_turns`].
pub(super) fn run(
    bench: &Bench<'_>,
    progress: Progress<'_>,
    found: &mut Found,
) -> Result<(), Error> {
    let captures = captures();
    let Sizes { pages, operations } = Sizes::of(bench);
    in_turns(bench.settings, (SECTION, progress), &KEEPERS, found, |keeper, repeat, samples| {
        let seed = bench.settings.seed.wrapping_add(repeat.into());
        let load = Load { captures: &captures, pages, operations, seed };
        let bytes = (pages * THREADS as usize * PAGE_BYTES) as u64;
        let result = match keeper {
            Keeper::Zram => {
                let device = Zram::add(bytes, "lz4")?;
                let direct = OFlags::DIRECT.bits().cast_signed();
                let mut options = OpenOptions::new();
                let options = options.read(true).write(true).custom_flags(direct);
                // In this order the file is closed before the device is removed.
                let file = options.open(device.path())?;
                load.run(&file)
            }
            Keeper::Store => {
                let pool = zfold_pool::create(NAME, &PoolOptions::new(Allocator::Zsmalloc));
                let slots = bytes / PAGE_BYTES as u64;
                let options = StoreOptions::new(slots, CodecKind::Lz4.into());
                let store = Store::new(pool.map_err(Error::from)?, &options);
                load.run(&store.map_err(Error::from)?)
            }
        };
        report(&keeper.to_string(), result?, samples);
        Ok(())
    })
}

/// Returns what the figures are of, in words.
pub(super) fn remark(bench: &Bench<'_>) -> String {
    let Sizes { pages, operations } = Sizes::of(bench);
    format!(
        "Of two threads each keeps {pages} pages of the captures under keys of its own and does \
         {operations} operations, half reads and half writes at random, by calls of the store and \
         by system calls past the page cache (pread, pwrite) on zram. Every page that is read is \
         compared, which operations a second include and times of single calls do not."
    )
}

/// How much a thread does.
struct Sizes {
    pages: usize,
    operations: usize,
}

impl Sizes {
    fn of(bench: &Bench<'_>) -> Self {
        let pages = sized(bench.settings, 32 << 10, 4 << 10);
        Self { pages, operations: sized(bench.settings, 512 << 10, 32 << 10) }
    }
}

fn report(variant: &str, done: Done, samples: &mut Samples) {
    let mut push = |metric: &str, unit, value| {
        samples.push(variant, THREADS, &format!("{SECTION}: {metric}"), unit, value);
    };
    push("reads and writes", "1/s", done.operations_per_second);
    for (name, times) in [("write", done.writes), ("read", done.reads)] {
        let summary = times.summary();
        push(&format!("{name} p50"), "us", summary.p50 as f64 / 1e3);
        push(&format!("{name} p99"), "us", summary.p99 as f64 / 1e3);
    }
}

/// Returns the pages of all captures at an address that suits reads and writes past the cache.
fn captures() -> AlignedBuffer {
    let content = Content::all();
    let mut pages = AlignedBuffer::new(content.len() * PAGE_BYTES);
    for (index, place) in pages.chunks_exact_mut(PAGE_BYTES).enumerate() {
        place.copy_from_slice(content.page(index));
    }
    pages
}

/// Where pages are written to and read from.
trait Pages: Sync {
    fn write(&self, key: u64, page: &[u8]) -> Result<(), Error>;
    /// Reads a page that was written before.
    fn read(&self, key: u64, page: &mut [u8]) -> Result<(), Error>;
}

impl Pages for Store {
    fn write(&self, key: u64, page: &[u8]) -> Result<(), Error> {
        Ok(self.store(key, page).map(drop)?)
    }

    fn read(&self, key: u64, page: &mut [u8]) -> Result<(), Error> {
        match self.load(key, page)? {
            true => Ok(()),
            false => Err(Error::WrongBytes { experiment: NAME, what: format!("no page {key}") }),
        }
    }
}

impl Pages for File {
    fn write(&self, key: u64, page: &[u8]) -> Result<(), Error> {
        Ok(self.write_all_at(page, key * PAGE_BYTES as u64)?)
    }

    fn read(&self, key: u64, page: &mut [u8]) -> Result<(), Error> {
        Ok(self.read_exact_at(page, key * PAGE_BYTES as u64)?)
    }
}

/// The work of all threads.
struct Load<'a> {
    captures: &'a [u8],
    /// Of a thread.
    pages: usize,
    /// Of a thread.
    operations: usize,
    seed: u64,
}

/// The result.
struct Done {
    operations_per_second: f64,
    reads: Latency,
    writes: Latency,
}

impl Load<'_> {
    /// Fills `pages`, and then reads and writes.
    fn run(&self, pages: &dyn Pages) -> Result<Done, Fault> {
        let prepare = |thread: u32| {
            let mut own = Own {
                pages,
                captures: self.captures,
                first: u64::from(thread) * self.pages as u64,
                held: vec![0; self.pages],
                buffer: AlignedBuffer::new(PAGE_BYTES),
                rng: SplitMix64::new(self.seed.wrapping_add(u64::from(thread) << 32)),
            };
            (0..self.pages).try_for_each(|place| own.write(place))?;
            Ok(own)
        };
        let work = |_, mut own: Own<'_>| own.read_and_write(self.operations);
        let (threads, elapsed) = together(THREADS, prepare, work)?;
        let (mut reads, mut writes) = (Latency::new(), Latency::new());
        for (of_reads, of_writes) in &threads {
            reads.merge(of_reads);
            writes.merge(of_writes);
        }
        let operations = (reads.count() + writes.count()) as f64;
        Ok(Done { operations_per_second: operations / elapsed.as_secs_f64(), reads, writes })
    }
}

/// The pages of one thread.
struct Own<'a> {
    pages: &'a dyn Pages,
    captures: &'a [u8],
    first: u64,
    /// Which page of the captures each place holds.
    held: Vec<usize>,
    buffer: AlignedBuffer,
    rng: SplitMix64,
}

impl Own<'_> {
    /// Writes any page of the captures.
    fn write(&mut self, place: usize) -> Result<(), Error> {
        let page = self.rng.below((self.captures.len() / PAGE_BYTES) as u64) as usize;
        self.held[place] = page;
        let bytes = &self.captures[page * PAGE_BYTES..][..PAGE_BYTES];
        self.pages.write(self.first + place as u64, bytes)
    }

    fn read(&mut self, place: usize) -> Result<(), Error> {
        self.pages.read(self.first + place as u64, &mut self.buffer)
    }

    /// Compares the bytes that were read last with those written there.
    fn check(&self, place: usize) -> Result<(), Error> {
        let expected = &self.captures[self.held[place] * PAGE_BYTES..][..PAGE_BYTES];
        verify(NAME, expected, &self.buffer, || format!("page {}", self.first + place as u64))
    }

    /// Reads and writes random pages, each as likely as the other; returns the times of both.
    fn read_and_write(&mut self, operations: usize) -> Result<(Latency, Latency), Error> {
        let (mut reads, mut writes) = (Latency::new(), Latency::new());
        for _ in 0..operations {
            let place = self.rng.below(self.held.len() as u64) as usize;
            if self.rng.below(2) == 0 {
                let start = Instant::now();
                self.read(place)?;
                reads.record(start.elapsed());
                self.check(place)?;
            } else {
                let start = Instant::now();
                self.write(place)?;
                writes.record(start.elapsed());
            }
        }
        Ok((reads, writes))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use super::*;

    /// Keeps pages as they are, but gives that of one key back with a wrong byte.
    #[derive(Default)]
    struct Plain {
        pages: Mutex<BTreeMap<u64, Vec<u8>>>,
        wrong: Option<u64>,
    }

    impl Pages for Plain {
        fn write(&self, key: u64, page: &[u8]) -> Result<(), Error> {
            self.pages.lock().unwrap().insert(key, page.to_owned());
            Ok(())
        }

        fn read(&self, key: u64, page: &mut [u8]) -> Result<(), Error> {
            page.copy_from_slice(&self.pages.lock().unwrap()[&key]);
            if self.wrong == Some(key) {
                page[PAGE_BYTES - 1] ^= 1;
            }
            Ok(())
        }
    }

    #[test]
    fn threads_have_keys_of_their_own_and_every_page_is_compared() {
        let captures = captures();
        assert_eq!(captures.as_ptr().addr() % PAGE_BYTES, 0);
        let load = Load { captures: &captures, pages: 8, operations: 400, seed: 1 };
        let good = Plain::default();
        let done = load.run(&good).unwrap();
        assert_eq!(done.reads.count() + done.writes.count(), 800);
        assert!(done.operations_per_second > 0.0);
        assert_eq!(good.pages.into_inner().unwrap().len(), 16);
        let wrong = Plain { wrong: Some(11), ..Plain::default() };
        match load.run(&wrong).map(drop).unwrap_err() {
            Fault::Failed(error) => {
                assert_eq!(error.to_string(), "disk: wrong bytes came back: page 11");
            }
            missing => panic!("{missing:?}"),
        }
    }
}
