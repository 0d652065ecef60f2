//! The memory side in this very process: windows of its address space are the program's memory,
//! the helper makes its calls here, and the tests are the tracer.
//!
//! A test that touches memory of a window waits for readers and the evictor, which touch none.

mod concurrent;
mod engine;
mod forks;
mod speed;

use std::io::{self, Write as _};
use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::{Arc, Mutex};

use super::engine::{Engine, EngineOptions};
use super::managed::lock;
use super::memory::{Attached, Call, Change, Follow, Inside, Memory, SpaceId, Tracing};
use super::ranges::{PAGE, pages_of};
use super::stats::Stats;
use crate::sys::pagemap::Pagemap;
use crate::sys::testing as sys;
use crate::sys::uffd::{Faults, Features, Uffd};

pub(crate) const MIB: usize = 1 << 20;
const STAGING: usize = 2 * MIB;
const SPACE: SpaceId = SpaceId(1);

/// Makes the helper's calls.
struct Here;

impl Inside for Here {
    fn call(&mut self, calls: &[Call], results: &mut [i64]) -> io::Result<()> {
        assert!(calls.len() <= Call::AT_ONCE && calls.len() == results.len());
        for (call, result) in calls.iter().zip(results) {
            *result = sys::call(call);
        }
        Ok(())
    }
}

/// Records what the memory side asks for.
#[derive(Default)]
struct Asked {
    attach: Mutex<Vec<SpaceId>>,
    end: Mutex<Vec<String>>,
}

impl Tracing for Asked {
    fn attach(&self, space: SpaceId) {
        lock(&self.attach).push(space);
    }

    fn end(&self, message: String) {
        // A test that waits for a page would wait for ever.
        let _ = writeln!(io::stderr(), "the tree would be ended: {message}");
        lock(&self.end).push(message);
    }
}

/// A memory side and a window that it manages.
struct World {
    engine: Engine,
    asked: Arc<Asked>,
    window: Range<usize>,
    next: Mutex<usize>,
    staging: Range<usize>,
    map: Pagemap,
}

/// Returns a descriptor for all faults, if this is permitted.
fn uffd(test: &str) -> Option<Uffd> {
    let opened = Uffd::open(Faults::All)
        .and_then(|uffd| uffd.handshake(Features::THREAD_ID.with(Features::MOVE)).map(|()| uffd));
    match opened {
        Ok(uffd) => {
            let flags = rustix::fs::OFlags::empty();
            rustix::fs::fcntl_setfl(&uffd, flags).unwrap();
            Some(uffd)
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "SKIPPED: {test}: full userfaultfd: {error}");
            None
        }
    }
}

impl World {
    /// Returns an attached world, unless the system does not permit it.
    fn new(test: &str, limit: usize) -> Option<Self> {
        let uffd = uffd(test)?;
        let world = Self::unattached(limit);
        world.attach(uffd);
        Some(world)
    }

    fn unattached(limit: usize) -> Self {
        let window = sys::window(1 << 32);
        // The staging lies outside: it is not the program's.
        let staging = sys::window(1 << 32);
        let staging = staging.start..staging.start + STAGING + 16 * PAGE;
        let asked = Arc::new(Asked::default());
        let mut options = EngineOptions::new(limit as u64);
        options.window = pages_of(&window);
        let engine = Engine::start(options, Arc::clone(&asked) as _).unwrap();
        let pid = std::process::id() as i32;
        engine.exec(SPACE, pid);
        let map = Pagemap::open(pid).unwrap();
        let next = Mutex::new(window.start);
        Self { engine, asked, window, next, staging, map }
    }

    fn attach(&self, uffd: Uffd) {
        assert!(sys::map(self.staging.start, self.staging.len(), true) > 0);
        assert_eq!(sys::advise(&self.staging, libc::MADV_DONTFORK), 0);
        let attached = Attached {
            number: uffd.as_fd().as_raw_fd(),
            uffd,
            inside: Box::new(Here),
            helper: 0,
            staging: self.staging.clone(),
            arguments: self.staging.start + STAGING,
            pid: std::process::id() as i32,
        };
        self.engine.attach(SPACE, attached);
    }

    /// Makes a change as a program does, with the tracer at its side.
    fn change(&self, change: &Change, make: impl FnOnce() -> i64) -> i64 {
        let follow = self.engine.before(SPACE, change);
        let result = make();
        if follow == Follow::Return {
            self.engine.after(SPACE, change, result);
        }
        result
    }

    /// Maps memory, with a gap behind it so that neighbours stay apart.
    fn map(&self, len: usize) -> Range<usize> {
        let at = {
            let mut next = lock(&self.next);
            let at = *next;
            *next += len + PAGE;
            at
        };
        self.map_at(at, len, false)
    }

    fn map_at(&self, at: usize, len: usize, fixed: bool) -> Range<usize> {
        assert!(self.window.contains(&at) && at + len <= self.window.end);
        let change = Change::Map { at, len, fixed, reserve_only: false };
        let result = self.change(&change, || sys::map(at, len, true));
        assert_eq!(result, at as i64);
        at..at + len
    }

    fn unmap(&self, range: &Range<usize>) {
        let change = Change::Unmap { range: range.clone() };
        assert_eq!(self.change(&change, || sys::unmap(range)), 0);
    }

    fn discard(&self, range: &Range<usize>, advice: i32) {
        let change = Change::Discard { range: range.clone() };
        assert_eq!(self.change(&change, || sys::advise(range, advice)), 0);
    }

    fn remap(&self, from: &Range<usize>, to: usize, len: usize, keep: bool) -> Range<usize> {
        let mut flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        flags |= if keep { libc::MREMAP_DONTUNMAP } else { 0 };
        let change = Change::Remap { from: from.clone(), len, fixed: Some(to), keep };
        let result = self.change(&change, || sys::remap(from, len, flags, to));
        assert_eq!(result, to as i64);
        to..to + len
    }

    /// Bytes of the window that are there.
    fn resident(&self) -> usize {
        let present = self.map.present(&self.window).unwrap();
        present.iter().map(|range| range.len()).sum()
    }

    fn stats(&self) -> Stats {
        self.engine.stats()
    }

    /// Returns when nothing is stored: the evictor may hold a few keys for a moment.
    fn wait_until_released(&self) {
        while self.stats().stored_pages > 0 {
            std::thread::yield_now();
        }
    }

    /// Asserts that nothing had to be given up, and that what is charged agrees with what is
    /// there when all is closed.
    fn check(&self) {
        assert_eq!(*lock(&self.asked.end), [""; 0]);
        let managed = self.engine.space(SPACE);
        managed.lock().check();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // First the space: what is unmapped then is nobody's.
        self.engine.gone(SPACE);
        let unmapped = sys::unmap(&self.window) == 0 && sys::unmap(&self.staging) == 0;
        assert!(unmapped || std::thread::panicking());
    }
}

/// Fills a page with words that name it and a version; compresses to about a third.
fn fill(page: usize, version: u64) {
    for word in (0..PAGE).step_by(8) {
        let low =
            if word % 24 == 0 { (word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) } else { 7 };
        sys::put(page + word, (page as u64) ^ (version << 20) ^ (low << 40));
    }
}

/// Asserts that a page is as it was filled.
fn verify(page: usize, version: u64) {
    for word in (0..PAGE).step_by(8) {
        let low =
            if word % 24 == 0 { (word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) } else { 7 };
        let expected = (page as u64) ^ (version << 20) ^ (low << 40);
        assert_eq!(sys::get(page + word), expected, "page {page:#x} word {word} v{version}");
    }
}

/// The pages of a range.
fn pages(range: &Range<usize>) -> impl DoubleEndedIterator<Item = usize> + use<> {
    range.clone().step_by(PAGE)
}
