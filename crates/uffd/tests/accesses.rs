//! Accesses of pages that the kernel notes (Linux 7.3), and what is answered where it does not.

use std::io::{self, Read as _, Write as _};
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::process::id;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use zfold_testing::skip::is_root;
use zfold_testing::{needs, skip};
use zfold_uffd::page::page_len;
use zfold_uffd::{Event, Faults, Features, Pagemap, Partial, Uffd};

const PAGES: usize = 16;
const ALL: Range<usize> = 0..PAGES;
const OPEN: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

/// A mapping of its own, with small pages.
struct Pages(usize, usize);

impl Pages {
    fn new(pages: usize) -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let len = pages * page_len();
        // SAFETY: a fresh mapping overlaps nothing.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, OPEN, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        let made = Self(start.expose_provenance(), pages);
        assert_eq!(made.advise(&(0..pages), libc::MADV_NOHUGEPAGE), 0);
        made
    }

    /// With a byte in each page.
    fn filled(with: u8) -> Self {
        let made = Self::new(PAGES);
        ALL.for_each(|page| made.write(page, with));
        made
    }

    fn range(&self, of: &Range<usize>) -> Range<usize> {
        self.0 + of.start * page_len()..self.0 + of.end * page_len()
    }

    fn at<T>(&self, page: usize) -> *mut T {
        assert!(page < self.1);
        std::ptr::with_exposed_provenance_mut(self.0 + page * page_len())
    }

    fn read(&self, page: usize) -> u8 {
        // SAFETY: in this mapping.
        unsafe { self.at::<u8>(page).read_volatile() }
    }

    fn write(&self, page: usize, byte: u8) {
        // SAFETY: in this mapping.
        unsafe { self.at::<u8>(page).write_volatile(byte) }
    }

    fn advise(&self, of: &Range<usize>, advice: libc::c_int) -> libc::c_int {
        // SAFETY: this mapping is the test's, which expects what the advice does.
        unsafe { libc::madvise(self.at(of.start), of.len() * page_len(), advice) }
    }

    fn allow(&self, of: &Range<usize>, access: libc::c_int) {
        // SAFETY: this mapping is the test's, which touches no page against it.
        let done = unsafe { libc::mprotect(self.at(of.start), of.len() * page_len(), access) };
        assert_eq!(done, 0);
    }

    /// Which pages are present and were not touched since they were watched, `x`, or were, `.`.
    fn marks(&self, map: &Pagemap) -> String {
        let (present, accessed) =
            (map.present(&self.range(&ALL)).unwrap(), map.accessed(&self.range(&ALL)).unwrap());
        let page = |page| {
            let at = self.0 + page * page_len();
            let is_in = |ranges: &[Range<usize>]| ranges.iter().any(|range| range.contains(&at));
            if is_in(&present) && !is_in(&accessed) { 'x' } else { '.' }
        };
        ALL.map(page).collect()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is the test's, and nobody uses it any longer.
        unsafe { libc::munmap(self.at(0), self.1 * page_len()) };
    }
}

fn open() -> io::Result<Uffd> {
    Uffd::open(Faults::All).or_else(|_| Uffd::open(Faults::UserOnly))
}

/// A descriptor that sees accesses; says so where there is none.
fn seeing(also: Features) -> Option<Uffd> {
    match Uffd::open_with(open, Features::MOVE.with(also), Features::ACCESSES) {
        Ok((uffd, true)) => return Some(uffd),
        Ok(_) => skip("accesses of pages are not seen (Linux 7.3)"),
        Err(error) => skip(format_args!("userfaultfd: {error}")),
    }
    None
}

/// Registers pages that are all present, so that nobody ever waits there.
fn register(uffd: &Uffd, pages: &Pages) {
    // SAFETY: the tests fill in what they evict before they touch it.
    unsafe { uffd.register_watched(&pages.range(&ALL)) }.unwrap();
}

/// Marks with `x` all pages but some.
fn but(touched: &[usize]) -> String {
    ALL.map(|page| if touched.contains(&page) { '.' } else { 'x' }).collect()
}

#[test]
fn a_kernel_that_sees_none_is_asked_again_by_a_fresh_descriptor_which_works() {
    let (uffd, sees) = match Uffd::open_with(open, Features::MOVE, Features::ACCESSES) {
        Ok(opened) => opened,
        Err(error) => return skip(format_args!("userfaultfd: {error}")),
    };
    let (pages, map) = (Pages::new(PAGES), Pagemap::open_own().unwrap());
    let (all, bytes) = (pages.range(&ALL), vec![7; PAGES * page_len()]);
    // SAFETY: all of it is filled in before it is touched.
    unsafe { uffd.register(all.clone()) }.unwrap();
    // SAFETY: nothing else expects other contents.
    unsafe { uffd.copy(all.start, &bytes, true) }.unwrap();
    assert_eq!((pages.read(0), pages.read(PAGES - 1)), (7, 7));
    // SAFETY: as above.
    let registered = unsafe { uffd.register_watched(&all) };
    if sees {
        registered.unwrap();
        assert_eq!(uffd.watch(&all, true), Ok(()));
        return assert_eq!(pages.marks(&map), but(&[]));
    }
    assert_eq!(registered.unwrap_err().raw_os_error(), Some(libc::EINVAL));
    let refused = uffd.watch(&all, true).unwrap_err();
    assert!([Errno::INVAL, Errno::NOTTY].contains(&refused), "{refused}");
    let scanned = map.accessed(&all).unwrap_err().raw_os_error();
    assert!([Some(libc::EINVAL), Some(libc::ENOTTY)].contains(&scanned), "{scanned:?}");
    // Only the whole is agreed on: a release that has it must not be refused for another reason.
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split('.').map(|part| part.parse().unwrap_or(0));
    let version: (u32, u32) = (numbers.next().unwrap(), numbers.next().unwrap_or(0));
    assert!(version < (7, 3) || open().unwrap().handshake(Features::ACCESSES).is_err());
}

#[test]
fn every_kind_of_access_clears_the_mark_of_its_page_alone() {
    let Some(uffd) = seeing(Features::MOVE) else { return };
    let (pages, map) = (Pages::filled(3), Pagemap::open_own().unwrap());
    register(&uffd, &pages);
    let (mut from, mut to) = io::pipe().unwrap();
    let slice = |page| pages.at::<u8>(page);
    let accesses: [(&str, &mut dyn FnMut()); 5] = [
        ("load", &mut || assert_eq!(pages.read(5), 3)),
        ("store", &mut || pages.write(5, 3)),
        ("write of the page", &mut || {
            // SAFETY: one byte of this mapping, read by the kernel.
            to.write_all(unsafe { std::slice::from_raw_parts(slice(5), 1) }).unwrap();
        }),
        ("read into the page", &mut || {
            // SAFETY: one byte of this mapping, which nothing else uses meanwhile.
            from.read_exact(unsafe { std::slice::from_raw_parts_mut(slice(5), 1) }).unwrap();
        }),
        ("process_vm_readv", &mut || {
            let mut byte = 0_u8;
            let local = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
            let there = libc::iovec { iov_base: pages.at(5), iov_len: 1 };
            // SAFETY: one byte is read to a variable that lives across the call.
            let read = unsafe { libc::process_vm_readv(id() as i32, &local, 1, &there, 1, 0) };
            assert_eq!((read, byte), (1, 3));
        }),
    ];
    for (name, access) in accesses {
        uffd.watch(&pages.range(&ALL), true).unwrap();
        assert_eq!(pages.marks(&map), but(&[]), "before {name}");
        access();
        assert_eq!(pages.marks(&map), but(&[5]), "{name}");
    }
    uffd.watch(&pages.range(&(0..8)), false).unwrap();
    assert_eq!(pages.marks(&map), format!("{:.<8}{:x<8}", "", ""), "no mark any more");
    // SAFETY: locking changes no contents.
    assert_eq!(unsafe { libc::mlock(pages.at(0), PAGES * page_len()) }, 0);
    assert_eq!(pages.marks(&map), but(&ALL.collect::<Vec<_>>()), "mlock touches all");
    let mut events = Vec::new();
    assert!(uffd.read(&mut events, 1).is_err(), "accesses/A2: nobody waits: {events:?}");
}

#[test]
fn a_mark_outlives_changes_of_access_and_advice_but_not_its_page() {
    let Some(uffd) = seeing(Features::MOVE) else { return };
    let (pages, map) = (Pages::filled(3), Pagemap::open_own().unwrap());
    register(&uffd, &pages);
    let watch = || uffd.watch(&pages.range(&ALL), true);
    watch().unwrap();
    for access in [libc::PROT_READ, libc::PROT_NONE, OPEN] {
        pages.allow(&(0..9), access);
        assert_eq!(pages.marks(&map), but(&[]), "{access}");
    }
    pages.allow(&(4..9), libc::PROT_NONE);
    uffd.watch(&pages.range(&ALL), false).unwrap();
    assert_eq!(watch(), Ok(()), "several mappings, of which one allows no access");
    pages.allow(&(4..9), OPEN);
    for advice in [libc::MADV_COLD, libc::MADV_FREE] {
        assert_eq!((pages.advise(&ALL, advice), pages.marks(&map)), (0, but(&[])), "{advice}");
    }
    ALL.for_each(|page| pages.write(page, 3));
    assert_eq!(pages.advise(&(2..4), libc::MADV_DONTNEED), 0);
    watch().unwrap();
    // SAFETY: both pages are missing, and nobody expects other contents.
    unsafe { uffd.copy(pages.range(&(2..3)).start, &vec![9; page_len()], true) }.unwrap();
    // SAFETY: as above.
    unsafe { uffd.zero(pages.range(&(3..4)), true) }.unwrap();
    assert_eq!(pages.marks(&map), but(&[2, 3]), "new pages were accessed");
    watch().unwrap();
    assert_eq!((pages.read(3), pages.marks(&map)), (0, but(&[3])), "the zero page has a mark, too");
    pages.write(3, 1);
    assert_eq!((pages.read(2), pages.read(3), pages.marks(&map)), (9, 1, but(&[2, 3])));
    watch().unwrap();
    // SAFETY: no page is held elsewhere.
    unsafe { uffd.unregister(pages.range(&ALL)) }.unwrap();
    assert_eq!(watch(), Err(Errno::NOENT), "accesses/A5");
    assert_eq!(pages.read(2), 9);
    assert_eq!(map.accessed(&pages.range(&ALL)).unwrap(), [], "not registered");
}

#[test]
fn where_a_range_cannot_be_watched_that_is_an_answer_and_nothing_is_done() {
    let also = Features::PROTECT.with(Features::DISCARDS);
    let Some(uffd) = seeing(also) else { return };
    let (pages, map) = (Pages::filled(3), Pagemap::open_own().unwrap());
    let registered = |pages: &Pages, of: Range<usize>| {
        // SAFETY: the pages are present, and stay so.
        unsafe { uffd.register_watched(&pages.range(&of)) }.map_err(|error| error.raw_os_error())
    };
    assert_eq!(uffd.watch(&pages.range(&ALL), true), Err(Errno::NOENT));
    registered(&pages, 0..8).unwrap();
    uffd.watch(&pages.range(&(0..8)), true).unwrap();
    assert_eq!(uffd.watch(&pages.range(&ALL), false), Err(Errno::NOENT), "half of it");
    assert_eq!(map.accessed(&pages.range(&ALL)).unwrap(), [], "nothing is done");
    pages.allow(&(8..16), libc::PROT_NONE);
    assert_eq!(registered(&pages, 8..16), Err(Some(libc::EINVAL)), "no access");
    // SAFETY: as above.
    unsafe { uffd.register(pages.range(&(8..16))) }.unwrap();
    let protected = Pages::filled(4);
    // SAFETY: as above.
    unsafe { uffd.register_protecting(&protected.range(&ALL)) }.unwrap();
    assert_eq!(registered(&protected, ALL), Err(Some(libc::EBUSY)), "protected from writes");
    std::thread::scope(|scope| {
        let discard = scope.spawn(|| pages.advise(&(0..1), libc::MADV_DONTNEED));
        poll(&mut [PollFd::new(&uffd, PollFlags::IN)], None).unwrap();
        assert_eq!(uffd.watch(&pages.range(&(0..8)), true), Err(Errno::AGAIN), "a change");
        let mut events = Vec::new();
        assert!(matches!((uffd.read(&mut events, 1), &events[..]), (Ok(1), [Event::Discarded(_)])));
        assert_eq!(discard.join().unwrap(), 0);
    });
    assert_eq!(uffd.watch(&pages.range(&(0..8)), true), Ok(()), "read");
}

#[test]
fn a_marked_page_moves_with_its_contents_and_only_a_watched_place_keeps_the_mark() {
    type Register = fn(&Uffd, &Pages);
    let places: [(&str, bool, Register); 3] = [
        // SAFETY: no page is touched before it is there.
        ("missing", false, |uffd, to| unsafe { uffd.register(to.range(&ALL)) }.unwrap()),
        ("quiet", false, |uffd, to| uffd.register_quietly(&to.range(&ALL)).unwrap()),
        ("watched", true, register),
    ];
    let map = Pagemap::open_own().unwrap();
    for (name, keeps, place) in places {
        for marked in [false, true] {
            let Some(uffd) = seeing(Features::PROTECT) else { return };
            let (from, to) = (Pages::filled(3), Pages::new(PAGES));
            register(&uffd, &from);
            place(&uffd, &to);
            uffd.watch(&from.range(&ALL), marked).unwrap();
            // SAFETY: both are this test's.
            unsafe { uffd.take_whole(to.0, from.range(&ALL)) }.unwrap();
            let accessed = map.accessed(&to.range(&ALL)).unwrap();
            assert_eq!((accessed.len(), map.present(&from.range(&ALL)).unwrap()), (0, vec![]));
            if keeps {
                assert_eq!(to.marks(&map), but(&[]), "{name}, {marked}");
            }
            assert_eq!((to.read(4), uffd.read(&mut Vec::new(), 1).is_err()), (3, true), "{name}");
            // SAFETY: as above.
            unsafe { uffd.take_whole(from.0, to.range(&ALL)) }.unwrap();
            assert_eq!(from.marks(&map), but(&[]), "back from {name}, {marked}");
            assert_eq!((from.read(6), from.marks(&map)), (3, but(&[6])));
        }
    }
}

#[test]
fn nothing_is_lost_where_marked_pages_move_while_threads_write_to_them() {
    const MOVES: u64 = 300;
    let Some(uffd) = seeing(Features::PROTECT) else { return };
    let (from, to, ends) = (Pages::filled(0), Pages::new(PAGES), AtomicBool::new(false));
    let (moved, counted) = (AtomicU64::new(0), AtomicU64::new(0));
    register(&uffd, &from);
    uffd.register_quietly(&to.range(&ALL)).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let (from, ends, counted) = (&from, &ends, &counted);
            scope.spawn(move || {
                for turn in 0.. {
                    // SAFETY: in the mapping, aligned, and only accessed by atomics meanwhile.
                    let words = unsafe { &*from.at::<[AtomicU64; 2]>(turn % PAGES) };
                    words[writer].fetch_add(1, Ordering::Relaxed);
                    counted.fetch_add(1, Ordering::Relaxed);
                    if ends.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        // Whatever a move has reported, what is there afterwards returns, and threads look again.
        let restore = |map: &Pagemap| {
            for part in map.present(&to.range(&ALL)).unwrap() {
                let home = from.0 + (part.start - to.0);
                // SAFETY: both are this test's, and the pages are missing at home.
                let done = unsafe { uffd.take_whole(home, part) };
                assert!(!matches!(done, Err(Partial { error: Errno::EXIST, done: 0 })), "{done:?}");
            }
            uffd.wake(from.range(&ALL)).unwrap();
            map.present(&to.range(&ALL)).unwrap().is_empty()
        };
        let map = Pagemap::open_own().unwrap();
        for _ in 0..MOVES {
            uffd.watch(&from.range(&ALL), true).unwrap();
            // SAFETY: as above.
            let out = unsafe { uffd.take_whole(to.0, from.range(&ALL)) };
            moved.fetch_add(u64::from(out.is_ok()), Ordering::Relaxed);
            while !restore(&map) {}
            while uffd.read(&mut Vec::new(), 16).is_ok() {}
        }
        ends.store(true, Ordering::Relaxed);
    });
    let words = ALL.flat_map(|page| [0, 1].map(|writer| (page, writer)));
    // SAFETY: in the mapping, whose writers have ended.
    let word = |(page, writer)| unsafe { from.at::<[u64; 2]>(page).read() }[writer];
    let sum: u64 = words.map(word).sum();
    assert_eq!(sum, counted.into_inner());
    assert!(moved.into_inner() > MOVES / 2);
}

#[test]
fn a_manager_outside_watches_a_child_from_its_fork_on() {
    const END: u8 = 255;
    let Some(uffd) = seeing(Features::MOVE) else { return };
    drop(uffd);
    needs!(is_root(), "the kernel reports forks only to root");
    let uffd = seeing(Features::FORKS).expect("root");
    let (pages, map) = (Pages::filled(3), Pagemap::open_own().unwrap());
    register(&uffd, &pages);
    uffd.watch(&pages.range(&ALL), true).unwrap();
    let (mut told, tell) = io::pipe().unwrap();
    let (wait, mut go) = io::pipe().unwrap();
    let events = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut events = Vec::new();
            poll(&mut [PollFd::new(&uffd, PollFlags::IN)], None).unwrap();
            uffd.read(&mut events, 1).unwrap();
            events
        });
        // Not by the library's call, which locks the allocator until the reader has done its work.
        // SAFETY: the child makes only system calls until it ends.
        let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } as i32;
        if child == 0 {
            let mut turn = 0_u8;
            while rustix::io::read(wait.as_fd(), std::slice::from_mut(&mut turn)) == Ok(1) {
                if turn == END {
                    break;
                }
                let read = pages.read(usize::from(turn));
                let _ = rustix::io::write(tell.as_fd(), &[read]);
            }
            // SAFETY: ends the child without anything of the parent.
            unsafe { libc::_exit(0) };
        }
        (child, reader.join().unwrap())
    });
    let (child, events) = events;
    let [Event::Forked(theirs)] = &events[..] else { panic!("{events:?}") };
    let there = Pagemap::open(child).unwrap();
    assert_eq!([pages.marks(&map), pages.marks(&there)], [but(&[]), but(&[])], "both keep them");
    let mut ask = |page| {
        let mut byte = 0;
        go.write_all(&[page]).unwrap();
        told.read_exact(std::slice::from_mut(&mut byte)).unwrap();
        byte
    };
    assert_eq!((ask(7), pages.marks(&there), pages.marks(&map)), (3, but(&[7]), but(&[])));
    theirs.watch(&pages.range(&ALL), true).unwrap();
    assert_eq!((ask(8), pages.marks(&there)), (3, but(&[8])), "again, from outside");
    go.write_all(&[END]).unwrap();
    // SAFETY: waits for the child of this test.
    assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
    assert_eq!(theirs.watch(&pages.range(&ALL), true), Err(Errno::SRCH), "it is gone");
}
