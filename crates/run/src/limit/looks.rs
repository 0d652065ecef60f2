//! Measures memory that cannot leave, and what zfold takes for itself, rarely: the kernel counts it
//! for each process.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use crate::options::Kind;
use crate::shared::Shared;
use crate::spaces::kinds::{Bytes, MUCH, Seen};
use crate::spaces::managed::{Managed, lock};
use crate::sys::proc::{self, Status};
use zfold_uffd::page::page_len;

/// The time between two looks: the first, and the longest, to which it doubles.
const REST: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];
/// The least pause after a look, as a multiple of the time that the look took.
const REST_TIMES: u32 = 50;

/// When to measure memory that cannot leave.
#[derive(Debug)]
pub(crate) struct Looks {
    due: Instant,
    rest: Duration,
}

impl Default for Looks {
    fn default() -> Self {
        Self { due: Instant::now() + REST[0], rest: REST[0] }
    }
}

impl Looks {
    /// Returns when it is time.
    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    /// Measures, if it is time.
    ///
    /// # Cost
    /// About 20 microseconds for each process, and about 20 ns for each page of this one. If
    /// several have much memory that they may share, the kernel walks their page tables twice.
    pub(crate) fn look(&mut self, shared: &Shared) {
        let began = Instant::now();
        if began < self.due {
            return;
        }
        look_at_own(shared);
        let limit = (shared.budget.limit() * page_len()) as u64;
        let mut all: Vec<Seen> =
            shared.books.all().iter().filter_map(|space| seen(space)).collect();
        let [shares, files] = [Kind::Shared, Kind::File].map(|kind| kind as usize);
        let both: u64 = all.iter().map(|one| one.bytes[shares] + one.bytes[files]).sum();
        if all.len() > 1 && both >= limit / MUCH {
            take_parts(&mut all);
        }
        if lock(&shared.kinds).note(&all, limit) {
            shared.tracing.tell();
        }
        self.rest = (self.rest * 2).min(REST[1]);
        self.due = Instant::now() + self.rest.max(began.elapsed() * REST_TIMES);
    }
}

/// Measures what this process has besides pages of the program.
fn look_at_own(shared: &Shared) {
    // What is compressed meanwhile counts as neither.
    let pages = (lock(&shared.cold.swap_cache).pages() * page_len()) as u64
        + shared.cold.store.held_bytes();
    let Ok(rollup) = fs::read_to_string("/proc/self/smaps_rollup") else { return };
    let own = (proc::kib(&rollup, "Anonymous:").unwrap_or(0) << 10).saturating_sub(pages);
    lock(&shared.kinds).own_bytes = own;
    shared.counters.peak_own_bytes.raise(own);
}

fn seen(managed: &Managed) -> Option<Seen> {
    let pid = managed.pid();
    if managed.is_dead() || pid == 0 {
        return None;
    }
    let status = Status::of(pid).ok()?;
    let bytes = |name| status.kib(name).unwrap_or(0) << 10;
    let locked = bytes("VmLck");
    // Less pages that are also counted elsewhere, or are locked.
    let rest = |pages: usize, but: u64| {
        let bytes = (pages * page_len()) as u64;
        (bytes.saturating_sub(but), but.saturating_sub(bytes))
    };
    let (fixed, open) = (managed.stays(), managed.left_open());
    let (protected, but) = rest(fixed, (managed.credit() * page_len()) as u64 + locked);
    let mut found = Bytes::default();
    found[Kind::Locked as usize] = locked;
    found[Kind::Protected as usize] = protected;
    found[Kind::Open as usize] = rest(open, but).0;
    found[Kind::Shared as usize] = bytes("RssShmem");
    found[Kind::File as usize] = bytes("RssFile");
    found[Kind::PageTables as usize] = bytes("VmPTE");
    let named = lock(&managed.tasks).first().copied().unwrap_or(pid);
    Some(Seen { pid, named, bytes: found })
}

/// Gives each process its share of the files and of the shared memory that it maps. One that is
/// gone keeps its figures.
///
/// They are read one after the other. A process that begins to map a page whose share was read
/// before makes that share too large, and the sum more than there is. So all are read again in the
/// opposite order, in which the same page counts for less, and the smaller sum stays.
fn take_parts(all: &mut [Seen]) {
    let kinds = [Kind::File, Kind::Shared].map(|kind| kind as usize);
    let parts = |one: &Seen| proportional(one.pid).unwrap_or(kinds.map(|kind| one.bytes[kind]));
    let there: Vec<_> = all.iter().map(parts).collect();
    let mut back: Vec<_> = all.iter().rev().map(parts).collect();
    back.reverse();
    for (part, kind) in kinds.into_iter().enumerate() {
        let sum = |of: &[[u64; 2]]| of.iter().map(|parts| parts[part]).sum::<u64>();
        let least = if sum(&there) <= sum(&back) { &there } else { &back };
        for (one, parts) in all.iter_mut().zip(least) {
            one.bytes[kind] = parts[part];
        }
    }
}

/// Returns a process's share of the files and of the shared memory that it maps.
fn proportional(pid: i32) -> io::Result<[u64; 2]> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let field = |name| proc::kib(&rollup, name).unwrap_or(0) << 10;
    Ok(["Pss_File:", "Pss_Shmem:"].map(field))
}
