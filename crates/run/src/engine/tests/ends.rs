//! What the kernel needs of threads that end.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::mpsc;
use std::thread::JoinHandle;

use zfold_store::backing::{Fault, Faults, FaultyBacking, MemoryBacking};
use zfold_store::{BackingOptions, Selection};
use zfold_testing::wait_until;

use super::*;
use crate::link::Ending;
use crate::spaces::access::Access;
use crate::sys::process::is_there;

/// A thread that does nothing until it is to end.
struct Idle {
    tid: i32,
    end: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

impl Idle {
    fn new() -> Self {
        let (told, tid) = mpsc::channel();
        let (end, ends) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            told.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            let _ = ends.recv();
        });
        Self { tid: tid.recv().unwrap(), end, thread }
    }

    /// Has it end; returns when the kernel has forgotten it.
    fn end(self) {
        drop(self.end);
        self.thread.join().unwrap();
        while is_there(self.tid) {
            std::thread::yield_now();
        }
    }
}

impl World {
    /// A thread is about to end; returns whether it could go on at once.
    fn ends(&self, thread: i32, tid_at: Option<usize>, robust: Option<usize>) -> bool {
        let memory = File::open("/proc/self/mem").unwrap();
        let word = |at: usize| {
            let mut bytes = [0; 8];
            let got = memory.read_exact_at(&mut bytes, at as u64);
            got.is_ok().then(|| usize::from_ne_bytes(bytes))
        };
        let turn = {
            let mut turns = lock(&self.turns);
            *turns += 1;
            *turns
        };
        let ticket = Ticket { thread, turn };
        let ending = Ending { tid_at, robust, word: &word };
        if self.engine.ends(self.space, &ending, ticket) {
            return true;
        }
        while !lock(&self.asked.gone_on).contains(&ticket) {
            std::thread::yield_now();
        }
        false
    }
}

fn put(at: usize, word: usize) {
    sys::put(at, word as u64);
}

/// The kernel clears the number after the tracer has let the thread go.
#[test]
fn the_page_of_a_thread_number_is_there_until_the_thread_is_gone() {
    let Some((world, memory)) = World::filled(16 * MIB, MIB) else { return };
    world.page_out(&memory);
    assert_eq!(world.there(&memory), [0; 0]);
    let (one, other) = (Idle::new(), Idle::new());
    let number = memory.start + 7 * page_len() + 64;
    assert!(!world.ends(one.tid, Some(number), None), "it had to wait");
    assert_eq!(world.there(&memory), [7]);
    assert!(!world.ends(other.tid, Some(number - 66), None), "it lies in two pages");
    world.page_out(&memory);
    assert_eq!(world.there(&memory), [6, 7]);
    other.end();
    world.page_out(&memory);
    assert_eq!(world.there(&memory), [7]);
    one.end();
    world.page_out(&memory);
    assert_eq!(world.there(&memory), [0; 0]);
    // Of one that is gone, whose number another one has.
    let idle = Idle::new();
    assert!(!world.ends(idle.tid, Some(number), None));
    world.engine.joined(world.space, idle.tid);
    world.page_out(&memory);
    assert_eq!(world.there(&memory), [0; 0]);
    idle.end();
    pages(&memory).for_each(|page| verify(page, 1));
}

/// Otherwise the tree would never end: the thread of which nobody can restore a page is killed, and
/// its end waits for another one.
#[test]
fn in_a_tree_that_is_being_ended_threads_end_without_their_pages() {
    let Some(uffd) = uffd() else { return };
    let backing = FaultyBacking::new(MemoryBacking::new(8 << 20), Faults::default(), 1);
    let backing = Arc::new(backing);
    let options = StoreOptions::new(1 << 12, CodecKind::Lz4.into());
    let options = options.with_backing(BackingOptions::new(Arc::clone(&backing) as _));
    let store = Arc::new(crate::spaces::tests::store(&options));
    let world = World::before(Arc::clone(&store), 16 * MIB, Resting::together());
    world.attach(uffd);
    let memory = world.map(MIB);
    pages(&memory).for_each(|page| fill(page, 1));
    world.page_out(&memory);
    wait_until("all pages are elsewhere", || {
        store.writeback(&Selection::All, None).unwrap();
        store.stats().backed_pages == pages(&memory).count() as u64
    });
    backing.set(Faults::default().with(Fault::ReadError, 1000));

    let idle = Idle::new();
    let (number, head) = (Some(memory.start + 64), Some(memory.start + 9 * page_len()));
    assert!(!world.ends(idle.tid, number, head), "it was told that all is there");
    assert!(lock(&world.asked.end)[0].contains("cannot restore a page"));
    // Something else that needs such a page does not go on.
    let ticket = Ticket { thread: idle.tid, turn: u64::MAX };
    let fork = Request::Fork { number_at: Some(memory.start + 64) };
    assert!(!world.engine.request(world.space, fork, ticket));
    assert!(!world.ends(idle.tid, number, head));
    assert!(!lock(&world.asked.gone_on).contains(&ticket));
    idle.end();
    backing.set(Faults::default());
    lock(&world.asked.end).clear();
}

#[test]
fn a_thread_of_which_all_is_there_ends_at_once() {
    let Some((world, memory)) = World::filled(16 * MIB, MIB) else { return };
    put(memory.start, memory.start);
    put(memory.start + 16, 0);
    let idle = Idle::new();
    let (number, head) = (Some(memory.start + 64), Some(memory.start));
    // Somebody may just read messages.
    let mut tries = 0..1000;
    assert!(tries.any(|_| world.ends(idle.tid, number, head)));
    // Nor is one held whose list is nowhere.
    let nowhere = [8, 1 << 47, usize::MAX - 7, world.place(page_len())];
    for at in nowhere {
        let mut tries = 0..1000;
        assert!(tries.any(|_| world.ends(idle.tid, Some(at), Some(at))), "{at:#x}");
    }
    idle.end();
}

/// Head, entries and the words of the mutexes each lie in a page of their own.
#[test]
fn robust_mutexes_of_a_thread_that_ends_are_there() {
    let Some((world, memory)) = World::filled(16 * MIB, MIB) else { return };
    let page = |at: usize| memory.start + at * page_len();
    let head = page(0) + 8;
    // The lowest bit says that it inherits priority.
    let links = [(head, page(4) + 32), (page(4) + 32, (page(2) + 32) | 1), (page(2) + 32, head)];
    links.into_iter().for_each(|(at, to)| put(at, to));
    put(head + 8, page_len());
    put(head + 16, page(9) + 32);
    let idle = Idle::new();
    world.page_out(&memory);
    assert!(!world.ends(idle.tid, None, Some(head)));
    // Others may have come along.
    world.page_out(&memory);
    assert_eq!(world.there(&memory), [0, 2, 3, 4, 5, 10]);
    // Also of a list that is there.
    let other = Idle::new();
    assert!(!world.ends(other.tid, None, Some(head)));
    idle.end();
    other.end();
    world.page_out(&memory);
    assert_eq!(world.there(&memory), [0; 0]);
}

/// The list is the program's, and so is what it does to itself by it; nobody else waits.
#[test]
fn a_list_that_is_none_holds_up_nobody() {
    let Some(world) = World::new(4096 * page_len()) else { return };
    let Some(foreign) = uffd() else { return };
    // Nobody answers for these pages.
    let foreign = Access::new(foreign);
    let theirs = sys::window(MIB);
    let theirs = theirs.start..theirs.start + 4 * page_len();
    assert_eq!(sys::map(theirs.start, theirs.len(), true), theirs.start as i64);
    foreign.register(std::process::id() as i32, &pages_of(&theirs)).unwrap();
    let memory = world.map(MIB);
    let head = memory.start;
    let entry = head + 4 * page_len();
    let wild = [
        (entry, entry),
        (theirs.start + 8, 0),
        (entry, theirs.start + page_len()),
        (entry, theirs.end - 4),
        (entry, memory.end - 4),
        (0, 0),
        (8, 0),
        (1 << 47, 0),
        (1 << 63, 0),
        (usize::MAX - 6, 0),
    ];
    for (first, next) in wild {
        for offset in [0, 32, theirs.start.wrapping_sub(entry), usize::MAX - entry - 1] {
            pages(&memory).for_each(|page| fill(page, 1));
            put(entry, next);
            put(head, first);
            put(head + 8, offset);
            put(head + 16, theirs.start);
            world.page_out(&memory);
            let idle = Idle::new();
            assert!(!world.ends(idle.tid, None, Some(head)));
            idle.end();
        }
    }
    // Nor by a list that begins there, or that is longer than any.
    let idle = Idle::new();
    let mut tries = 0..1000;
    assert!(tries.any(|_| world.ends(idle.tid, Some(theirs.start), Some(theirs.start))));
    let long = world.map(3072 * page_len());
    let chain: Vec<usize> = pages(&long).collect();
    chain.windows(2).for_each(|pair| put(pair[0], pair[1]));
    put(long.start + 8, 0);
    world.page_out(&long);
    assert!(!world.ends(idle.tid, None, Some(long.start)));
    world.page_out(&long);
    let there = world.there(&long).len();
    assert!((2048..2051).contains(&there), "{there} pages");
    idle.end();
    // Nobody reads that they are unmapped.
    drop(foreign);
    assert_eq!(sys::unmap(&theirs), 0);
}
