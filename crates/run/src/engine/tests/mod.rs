//! The memory side in this very process: windows of its address space are the program's memory,
//! the helper makes its calls here, and the tests are the tracer.
//!
//! A test that touches memory of a window waits for readers and the evictor, which touch none.

mod copies;
mod discards;
mod ends;
mod engine;
mod fixed;
mod forks;
mod helpers;
mod hot;
mod seen;
mod staging;
mod starving;

use std::io::{self, Write as _};
use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::core::ranges::pages_of;
use crate::engine::{Engine, EngineOptions, KEYS};
use crate::figures::Figures;
use crate::link::{Attached, Call, Inside, Memory, Request, SpaceId, Ticket, Tracing};
use crate::permission::sees_accesses;
use crate::spaces::managed::{Managed, lock};
use crate::sys::tests as sys;
use zfold_store::{CodecKind, Store, StoreOptions};
use zfold_uffd::page::page_len;
use zfold_uffd::{Faults, Features, Pagemap, Uffd};

pub(crate) const MIB: usize = 1 << 20;
const STAGING: usize = 2 * MIB;
const OTHER: usize = MIB / 2;

/// Makes the helper's calls.
#[derive(Clone, Default)]
struct Here {
    /// From now on it ends while it moves pages out.
    ends: Arc<AtomicBool>,
    /// From now on nothing that it took out can be read.
    fails: Arc<AtomicBool>,
    /// From now on it takes long to read what it took out.
    dawdles: Arc<AtomicBool>,
    /// From now on each move reports less than it did.
    hides: Arc<AtomicBool>,
    /// From now on the first page of what it took out is lost before it is read.
    loses: Arc<AtomicBool>,
}

impl Inside for Here {
    fn call(&mut self, calls: &[Call], results: &mut [i64]) -> io::Result<()> {
        assert!(calls.len() <= Call::AT_ONCE && calls.len() == results.len());
        for (call, result) in calls.iter().zip(results) {
            *result = sys::call(call);
            let moved = call.args[1] == Uffd::MOVE_CODE && *result == 0;
            if moved && self.hides.load(Ordering::Relaxed) {
                *result = hide(call)?;
            }
        }
        if let Some(first) = calls.iter().find(|call| call.args[1] == Uffd::MOVE_CODE) {
            if self.loses.load(Ordering::Relaxed) {
                let to = sys::get(first.args[2] as usize) as usize;
                sys::advise(&(to..to + page_len()), libc::MADV_DONTNEED);
            }
            if self.ends.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
        }
        Ok(())
    }

    fn read(&mut self, from: usize, into: &mut [u8]) -> io::Result<()> {
        if self.fails.load(Ordering::Relaxed) || self.ends.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if self.dawdles.load(Ordering::Relaxed) {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        match crate::sys::remote::read(std::process::id() as i32, from, into) {
            // Memory that can only be written to.
            Err(error) if error.raw_os_error() == Some(libc::EFAULT) => {
                crate::sys::remote::read_forced(std::process::id() as i32, from, into)
            }
            result => result,
        }
    }

    fn write(&mut self, to: usize, bytes: &[u8]) -> io::Result<()> {
        sys::write(to, bytes)
    }
}

/// Changes what a move that was made reports, and returns what it returns then: as Linux 6.18 does
/// where a page changed meanwhile.
fn hide(call: &Call) -> io::Result<i64> {
    // u64 to, u64 from, u64 length, u64 mode, i64 moved
    let (len, moved) = (call.args[2] as usize + 16, call.args[2] as usize + 32);
    let (report, error) = match sys::get(len) as usize {
        len if len == page_len() => (-i64::from(libc::EEXIST), libc::EEXIST),
        _ => (page_len() as i64, libc::EAGAIN),
    };
    sys::write(moved, &report.to_ne_bytes())?;
    Ok(-i64::from(error))
}

/// Records what the memory side asks for.
#[derive(Default)]
struct Asked {
    attach: Mutex<Vec<SpaceId>>,
    gone_on: Mutex<Vec<Ticket>>,
    end: Mutex<Vec<String>>,
    victims: Mutex<Vec<SpaceId>>,
    /// A space that is to stand still, and the turn.
    stand: Mutex<Option<(SpaceId, u64)>>,
}

impl Tracing for Asked {
    fn attach(&self, space: SpaceId) {
        lock(&self.attach).push(space);
    }

    fn go_on(&self, ticket: Ticket) {
        lock(&self.gone_on).push(ticket);
    }

    fn visit(&self, _thread: i32) {}

    fn stand(&self, space: SpaceId, turn: u64, still: bool) {
        *lock(&self.stand) = still.then_some((space, turn));
    }

    fn end_helper(&self, _space: SpaceId) {}

    fn end_space(&self, _space: SpaceId, message: String) {
        self.end(message);
    }

    fn end_victim(&self, space: SpaceId, _why: String) {
        lock(&self.victims).push(space);
    }

    fn tell(&self) {}

    fn end(&self, message: String) {
        // A test that waits for a page would wait for ever.
        let _ = writeln!(io::stderr(), "the tree would be ended: {message}");
        lock(&self.end).push(message);
    }

    fn end_rest(&self) {}
}

/// Forks of this process are other tests' business.
fn features() -> Features {
    let features = Features::MOVE.with(Features::THREAD_ID).with(Features::CHANGES);
    if sees_accesses() { features.with(Features::ACCESSES) } else { features }
}

/// Held by all tests; alone by one whose threads never rest: they look as if they were in a call,
/// and other worlds, which have all threads of this process, would wait for them.
static RESTING: RwLock<()> = RwLock::new(());

/// How a test holds it.
#[expect(dead_code, reason = "they are held")]
enum Resting {
    Together(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

impl Engine {
    /// Returns a space.
    pub(super) fn space(&self, id: SpaceId) -> Arc<Managed> {
        self.shared.books.find(id).expect("it is there")
    }
}

impl Resting {
    fn together() -> Self {
        Self::Together(RESTING.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A memory side and a window that it manages.
struct World {
    engine: Engine,
    asked: Arc<Asked>,
    here: Here,
    window: Range<usize>,
    next: Mutex<usize>,
    space: SpaceId,
    turns: Mutex<u64>,
    staging: Range<usize>,
    map: Pagemap,
    _resting: Resting,
}

/// Returns a descriptor for all faults, if this is permitted.
fn uffd() -> Option<Uffd> {
    let opened = Uffd::open(Faults::All).and_then(|uffd| uffd.handshake(features()).map(|()| uffd));
    match opened {
        Ok(uffd) => Some(uffd),
        Err(error) => {
            zfold_testing::skip(format_args!("full userfaultfd: {error}"));
            None
        }
    }
}

impl World {
    /// Returns an attached world, unless the system does not permit it.
    fn new(limit: usize) -> Option<Self> {
        Self::attached(limit, Resting::together())
    }

    /// The same with memory of this length, which the program has filled.
    fn filled(limit: usize, len: usize) -> Option<(Self, Range<usize>)> {
        let world = Self::new(limit)?;
        let memory = world.map(len);
        pages(&memory).for_each(|page| fill(page, 1));
        Some((world, memory))
    }

    /// The same for a test whose threads never rest.
    fn alone(limit: usize) -> Option<Self> {
        let resting = RESTING.write().unwrap_or_else(PoisonError::into_inner);
        Self::attached(limit, Resting::Alone(resting))
    }

    fn attached(limit: usize, resting: Resting) -> Option<Self> {
        let uffd = uffd()?;
        let world = Self::unattached(limit, resting);
        world.attach(uffd);
        Some(world)
    }

    fn unattached(limit: usize, resting: Resting) -> Self {
        let store = StoreOptions::new(KEYS, CodecKind::Lz4.into());
        Self::before(Arc::new(crate::spaces::tests::store(&store)), limit, resting)
    }

    /// The same before a store.
    fn before(store: Arc<Store>, limit: usize, resting: Resting) -> Self {
        let window = sys::window(1 << 32);
        // The staging lies outside: it is not the program's.
        let staging = sys::window(1 << 32);
        let staging = staging.start..staging.start + STAGING + 16 * page_len() + 2 * OTHER;
        let asked = Arc::new(Asked::default());
        let mut options = EngineOptions::new(limit as u64, store);
        options.window = pages_of(&window);
        let engine = Engine::start(options, Arc::clone(&asked) as _).unwrap();
        let pid = std::process::id() as i32;
        let space = engine.exec(pid);
        let map = Pagemap::open(pid).unwrap();
        let next = Mutex::new(window.start);
        let turns = Mutex::new(0);
        let here = Here::default();

        Self { engine, asked, here, window, next, space, turns, staging, map, _resting: resting }
    }

    fn attach(&self, uffd: Uffd) {
        assert!(sys::map(self.staging.start, self.staging.len(), true) > 0);
        assert_eq!(sys::advise(&self.staging, libc::MADV_DONTFORK), 0);
        self.give_helper(uffd.as_fd().as_raw_fd() as u64, Some(uffd));
    }

    /// Gives the space a helper, which names the descriptor by its number.
    fn give_helper(&self, number: u64, uffd: Option<Uffd>) {
        let attached = Attached {
            number,
            uffd,
            inside: Box::new(self.here.clone()),
            helper: 0,
            helper_here: 0,
            pid: std::process::id() as i32,
            staging: self.staging.start..self.staging.start + STAGING,
            others: self.others(),
            arguments: self.staging.start + STAGING,
            all: self.staging.clone(),
            may_protect: false,
        };
        self.hold(|ticket| {
            self.engine.attach(self.space, attached, ticket);
            false
        });
    }

    /// Stagings for memory that can only be written to, and for code.
    fn others(&self) -> Vec<(u8, Range<usize>)> {
        let start = self.staging.start + STAGING + 16 * page_len();
        let protections = [libc::PROT_WRITE, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC];
        let at = (start..self.staging.end).step_by(OTHER);
        let other = |(protection, at): (i32, usize)| {
            sys::protect_as(&(at..at + OTHER), protection);
            (protection as u8, at..at + OTHER)
        };
        protections.into_iter().zip(at).map(other).collect()
    }

    /// Asks for something, and waits as the tracer's thread does until it is done.
    fn hold(&self, ask: impl FnOnce(Ticket) -> bool) {
        let ticket = {
            let mut turns = lock(&self.turns);
            *turns += 1;
            Ticket { thread: std::process::id() as i32, turn: *turns }
        };
        if ask(ticket) {
            return;
        }
        while !lock(&self.asked.gone_on).contains(&ticket) {
            std::thread::yield_now();
        }
    }

    fn request(&self, request: Request) {
        self.hold(|ticket| self.engine.request(self.space, request, ticket));
    }

    fn page_out(&self, range: &Range<usize>) {
        self.request(Request::PageOut { range: range.clone() });
    }

    /// Which pages of a range are there.
    fn there(&self, range: &Range<usize>) -> Vec<usize> {
        let found = self.map.present(range).unwrap().into_iter();
        found.flat_map(|part| pages(&part)).map(|page| (page - range.start) / page_len()).collect()
    }

    /// Maps memory, with a gap behind it so that neighbours stay apart.
    fn map(&self, len: usize) -> Range<usize> {
        self.map_at(self.place(len), len)
    }

    /// Maps memory that stays open until somebody closes it.
    fn unwatched(&self, len: usize) -> Range<usize> {
        let at = self.place(len);
        assert_eq!(sys::map(at, len, true), at as i64);
        at..at + len
    }

    /// Returns where there was nothing yet, nor right before or behind it.
    fn place(&self, len: usize) -> usize {
        let mut next = lock(&self.next);
        let at = *next;
        *next += len + page_len();
        assert!(*next <= self.window.end, "the window is used up");
        at
    }

    /// What is mapped is closed, as large mappings are when there is no room.
    fn map_at(&self, at: usize, len: usize) -> Range<usize> {
        assert!(self.window.contains(&at) && at + len <= self.window.end);
        assert_eq!(sys::map(at, len, true), at as i64);
        let range = at..at + len;
        self.request(Request::Mapped { range: range.clone() });
        range
    }

    fn unmap(&self, range: &Range<usize>) {
        assert_eq!(sys::unmap(range), 0);
    }

    fn discard(&self, range: &Range<usize>, advice: i32) {
        assert_eq!(sys::advise(range, advice), 0);
    }

    fn remap(&self, from: &Range<usize>, to: usize, len: usize, keep: bool) -> Range<usize> {
        let mut flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        flags |= if keep { libc::MREMAP_DONTUNMAP } else { 0 };
        self.request(Request::Level { range: from.clone(), len });
        let result = sys::remap(from, len, flags, to);
        assert_eq!(result, to as i64);
        let moved = Request::Moved { from: from.clone(), to: Some(to..to + len) };
        self.request(moved);
        to..to + len
    }

    /// Bytes of the window that are there.
    fn resident(&self) -> usize {
        let present = self.map.present(&self.window).unwrap();
        present.iter().map(|range| range.len()).sum()
    }

    fn stats(&self) -> Figures {
        self.engine.figures()
    }

    /// Returns when nothing is stored: the evictor may hold a few keys for a moment.
    fn wait_until_released(&self) {
        while self.stats().stored_pages > 0 {
            std::thread::yield_now();
        }
    }

    /// Asserts that nothing had to be given up, and that what is counted agrees with the table.
    fn check(&self) {
        assert_eq!(*lock(&self.asked.end), [""; 0]);
        if let Some(managed) = self.engine.shared.books.find(self.space) {
            managed.lock().check();
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Threads of a test that failed may be at it still: a fault there would hide why it did.
        let has_failed = std::thread::panicking();
        if !has_failed {
            self.check();
        }
        // First the space: what is unmapped then is nobody's.
        self.engine.gone(self.space);
        if !has_failed {
            assert!(sys::unmap(&self.window) == 0 && sys::unmap(&self.staging) == 0);
        }
    }
}

/// Fills a page with words that name it and a version; compresses to about a third.
fn fill(page: usize, version: u64) {
    for word in (0..page_len()).step_by(8) {
        let low =
            if word % 24 == 0 { (word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) } else { 7 };
        sys::put(page + word, (page as u64) ^ (version << 20) ^ (low << 40));
    }
}

/// Puts the number of each page in it, from 1 on: it says where a page was that has moved.
fn number(range: &Range<usize>) {
    (1..).zip(pages(range)).for_each(|(number, page)| sys::put(page, number));
}

/// Asserts that pages have numbers from this one on.
fn verify_numbers(range: &Range<usize>, first: u64) {
    (first..).zip(pages(range)).for_each(|(number, page)| assert_eq!(sys::get(page), number));
}

/// Asserts that a page is as it was filled.
fn verify(page: usize, version: u64) {
    for word in (0..page_len()).step_by(8) {
        let low =
            if word % 24 == 0 { (word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) } else { 7 };
        let expected = (page as u64) ^ (version << 20) ^ (low << 40);
        assert_eq!(sys::get(page + word), expected, "page {page:#x} word {word} v{version}");
    }
}

/// Asserts that pages are as they were filled, but for some, which are zeros.
fn verify_but(memory: &Range<usize>, zeros: &Range<usize>, version: u64) {
    for page in pages(memory) {
        if zeros.contains(&page) {
            assert_eq!(sys::get(page), 0, "page {page:#x}");
        } else {
            verify(page, version);
        }
    }
}

/// The pages of a range.
fn pages(range: &Range<usize>) -> impl DoubleEndedIterator<Item = usize> + use<> {
    range.clone().step_by(page_len())
}
