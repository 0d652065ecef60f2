//! A deterministic simulation of guests: a kernel of plain data that answers as Linux does,
//! processors that read and write, a balloon that gives pages up; and the same with one step
//! broken, which must be caught.
//!
//! What every read must find is known: the image's page, what was written last, or zeros after a
//! discard. At the end nobody may wait.
//!
//! Servers are killed, too: in any of the kernel's calls, before or after it has done its work.
//! After a while another one takes over, which has the bits and the messages that were read last.

mod filling;
mod succession;

use std::cell::Cell;
use std::collections::HashSet;
use std::ops::Range;
use std::panic::resume_unwind;

use rustix::io::Errno;
use zfold_store::LoadError;
use zfold_testing::Random;
use zfold_uffd::page::PAGE;
use zfold_uffd::{Event, Partial};

use self::succession::{Kept, Killed, Server, guest};
use super::fault::Next;
use super::regions::Region;
use super::space::{Image, Space};
use super::table::given_up as given_up_of;

const BASE: usize = 1 << 30;
/// Pages of 2 MiB are first, those of 4 KiB behind them, where the middle is the border of two
/// regions, and there is one of two mappings within the second.
const LARGE: usize = 2 * UNIT;
const UNIT: usize = 512;
const MIDDLE: usize = LARGE + 40;
const BORDER: usize = LARGE + 71;
pub(super) const PAGES: usize = LARGE + 96;
const PROCESSORS: usize = 3;

/// A step that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Twin {
    None,
    /// Discards are told after the faults of the next time.
    DiscardsLate,
    /// `EEXIST` wakes nobody.
    NoWake,
    /// `EAGAIN` is taken for success.
    AgainIsDone,
    /// Only messages are a reason to try again.
    NoTimer,
    /// A fault for a page that was put in brings the image's page again: the bit is forgotten.
    Twice,
    /// Who takes over does not look at the messages that were read last.
    Unread,
    /// Who takes over wakes nobody.
    NoWakeAfter,
    /// Who takes over has bits of a while ago.
    OldBits,
    /// Who takes over does not wait until the one before has ended its last copy.
    Overlap,
    /// Nobody has the descriptor for a while.
    Closed,
}

/// Returns a page: hardly ever one of those of 2 MiB, so that the others have their turn.
fn any_page(random: &mut Random) -> u64 {
    match random.below(20) {
        0 => random.below(LARGE as u64),
        _ => LARGE as u64 + random.below((PAGES - LARGE) as u64),
    }
}

/// What the image holds: a word a page; every fourth is zeros, all of the second 2 MiB are, and one
/// cannot be read for a while.
pub(super) struct Words {
    unreadable: Cell<Option<u64>>,
    recorded: bool,
    set: HashSet<u64>,
}

impl Words {
    fn word(page: u64) -> u64 {
        let is_zero = page % 4 == 3 || (UNIT..LARGE).contains(&(page as usize));
        if is_zero { 0 } else { 1000 + page }
    }
}

impl Image for Words {
    fn is_zero(&self, page: u64) -> bool {
        Self::word(page) == 0
    }

    fn load(&self, page: u64, into: &mut [u8]) -> Result<(), LoadError> {
        if self.unreadable.get() == Some(page) {
            return Err(LoadError::Dead);
        }
        into[..8].copy_from_slice(&Self::word(page).to_le_bytes());
        Ok(())
    }

    fn is_recorded(&self) -> bool {
        self.recorded
    }

    fn touched(&self, _: u64) {}

    fn next_wanted(&self, page: u64) -> Option<u64> {
        self.set.iter().copied().filter(|wanted| *wanted >= page).min()
    }
}

/// A discard that is under way.
struct Discard {
    pages: Range<usize>,
    read: bool,
    /// The kernel takes pages again, but has not dropped those of the range yet.
    passed: bool,
}

/// The kernel, and what the guest should see.
pub(super) struct Kernel {
    pub(super) twin: Twin,
    pub(super) random: Random,
    pages: [Option<u64>; PAGES],
    right: [u64; PAGES],
    /// What was given up at any time.
    given_up: [bool; PAGES],
    /// Messages that are unread.
    unread: Vec<Event>,
    late: Vec<Event>,
    discard: Option<Discard>,
    /// Which page a processor has found missing, and what it does about that.
    waits: [Option<(usize, Wait)>; PROCESSORS],
    /// One of so many calls is the last one of a server; none if it is 0.
    deadly: u64,
    /// What was given up by the messages that were read last.
    pub(super) journal: Vec<Range<usize>>,
    /// A copy that a server has begun, and that goes on after its end.
    pub(super) under_way: Option<(usize, Vec<u64>)>,
    /// The turn at which another server takes over, if there is none.
    pub(super) heir_at: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// It will send its message, and whoever wakes it before that wakes nobody: harder than Linux,
    /// which looks at the page once more.
    AboutTo,
    Blocked,
    /// It was woken.
    LooksAgain,
}

impl Kernel {
    fn page(at: usize) -> usize {
        (at - BASE) / PAGE
    }

    /// Perhaps the server is killed here.
    fn perhaps_die(&mut self) {
        if self.deadly > 0 && self.random.below(self.deadly) == 0 {
            // Without a word of the hook for panics.
            resume_unwind(Box::new(Killed));
        }
    }

    /// Fills pages as far as the kernel does.
    pub(super) fn fill(&mut self, at: usize, words: &[u64]) -> Result<(), Partial> {
        let first = Self::page(at);
        if first < BORDER && first + words.len() > BORDER {
            return Err(Partial { done: 0, error: Errno::NOENT });
        }
        let often = if words.len() > UNIT / 8 { 200 } else { 10 };
        for (n, &word) in words.iter().enumerate() {
            let page = first + n;
            let stop = |error| Err(Partial { done: n * PAGE, error });
            let changing = self.discard.as_ref().is_some_and(|discard| !discard.passed);
            if changing {
                return if self.twin == Twin::AgainIsDone { Ok(()) } else { stop(Errno::AGAIN) };
            }
            if self.pages[page].is_some() {
                return stop(Errno::EXIST);
            }
            self.pages[page] = Some(word);
            self.look_again(page..page + 1);
            // A copy may end in the middle.
            if n + 1 < words.len() && self.random.below(often) == 0 {
                return Err(Partial { done: (n + 1) * PAGE, error: Errno::AGAIN });
            }
        }
        Ok(())
    }

    fn look_again(&mut self, pages: Range<usize>) {
        for wait in self.waits.iter_mut().flatten() {
            if pages.contains(&wait.0) && wait.1 == Wait::Blocked {
                wait.1 = Wait::LooksAgain;
            }
        }
    }

    /// A processor touches a page: that for which it waits, or any.
    fn touch(&mut self, processor: usize) {
        let page = match self.waits[processor] {
            Some((_, Wait::Blocked)) => return,
            Some((page, Wait::AboutTo)) => {
                self.waits[processor] = Some((page, Wait::Blocked));
                let address = BASE + page * PAGE + 5;
                self.unread.push(Event::Missing { address, thread: 0, writes: false });
                return;
            }
            Some((page, Wait::LooksAgain)) => page,
            None => any_page(&mut self.random) as usize,
        };
        if self.pages[page].is_none() && self.heir_at.is_some() && self.twin == Twin::Closed {
            self.pages[page] = Some(0);
        }
        let Some(found) = self.pages[page] else {
            self.waits[processor] = Some((page, Wait::AboutTo));
            return;
        };
        self.waits[processor] = None;
        // While it is given up, the page is what it was or zeros already.
        let under_way = self.discard.as_ref().is_some_and(|now| now.pages.contains(&page));
        if under_way && found == 0 {
            self.right[page] = 0;
        }
        assert_eq!(found, self.right[page], "page {page}");
        if self.random.below(3) == 0 {
            let word = 5000 + self.random.below(1000);
            (self.pages[page], self.right[page]) = (Some(word), word);
        }
    }

    /// The balloon goes on with its discard, or begins one.
    fn discard(&mut self) {
        match &mut self.discard {
            None => {
                let pages = match any_page(&mut self.random) as usize {
                    // As of huge pages: whole ones.
                    from if from < LARGE => from / UNIT * UNIT..(from / UNIT + 1) * UNIT,
                    from => from..(from + 1 + self.random.below(6) as usize).min(PAGES),
                };
                let at = |page: usize| BASE + page * PAGE;
                self.unread.push(Event::Discarded(at(pages.start)..at(pages.end)));
                self.discard = Some(Discard { pages, read: false, passed: false });
            }
            Some(now) if !now.read => {}
            Some(now) if !now.passed => now.passed = true,
            Some(now) => {
                for page in now.pages.clone() {
                    (self.pages[page], self.right[page]) = (None, 0);
                    self.given_up[page] = true;
                }
                self.discard = None;
            }
        }
    }
}

impl Space for Kernel {
    fn read(&mut self, into: &mut Vec<Event>) {
        self.perhaps_die();
        into.append(&mut self.late);
        let is_discard = |event: &Event| matches!(event, Event::Discarded(_));
        // As from Linux: faults first.
        let (discards, faults): (Vec<_>, Vec<_>) = self.unread.drain(..).partition(is_discard);
        if let Some(now) = &mut self.discard {
            now.read |= !discards.is_empty();
        }
        self.journal = discards
            .iter()
            .filter_map(|event| match event {
                Event::Discarded(of) => Some(of.clone()),
                _ => None,
            })
            .collect();
        // Whoever discards may be quicker than whoever reads.
        for _ in 0..self.random.below(3) {
            if !discards.is_empty() && self.discard.is_some() {
                self.discard();
            }
        }
        into.extend(faults);
        match self.twin {
            Twin::DiscardsLate => self.late = discards,
            _ => into.extend(discards),
        }
        self.perhaps_die();
    }

    fn copy(&mut self, to: usize, pages: &[u8]) -> Result<(), Partial> {
        let words = pages.chunks(PAGE);
        let word = |page: &[u8]| u64::from_le_bytes(page[..8].try_into().expect("8 bytes"));
        let words: Vec<_> = words.map(word).collect();
        if self.twin == Twin::Overlap {
            self.under_way = Some((to, words.clone()));
        }
        self.perhaps_die();
        self.under_way = None;
        let filled = self.fill(to, &words);
        self.perhaps_die();
        filled
    }

    fn zero(&mut self, of: Range<usize>) -> Result<(), Partial> {
        let words: Vec<u64> = match self.twin {
            Twin::Twice => {
                let first = Self::page(of.start) as u64;
                (0..(of.len() / PAGE) as u64).map(|n| Words::word(first + n)).collect()
            }
            _ => vec![0; of.len() / PAGE],
        };
        self.perhaps_die();
        let filled = self.fill(of.start, &words);
        self.perhaps_die();
        filled
    }

    fn wake(&mut self, of: Range<usize>) {
        let takes_over = self.heir_at.is_some() && self.twin == Twin::NoWakeAfter;
        if self.twin != Twin::NoWake && !takes_over {
            self.look_again(Self::page(of.start)..Self::page(of.end));
        }
    }

    fn answered(&mut self, _: u64) {}
}

/// Three regions side by side.
pub(super) fn regions() -> Vec<Region> {
    let region = |pages: Range<usize>, unit: usize, first: u64| {
        let at = BASE + pages.start * PAGE..BASE + pages.end * PAGE;
        Region { at, page: pages.start as u64, unit, first }
    };
    let large = region(0..LARGE, UNIT * PAGE, 0);
    let first = region(LARGE..MIDDLE, PAGE, 2);
    let second = region(MIDDLE..PAGES, PAGE, first.units().end);
    vec![large, first, second]
}

impl Kernel {
    fn new(twin: Twin, random: Random) -> Self {
        Self {
            twin,
            random,
            pages: [None; PAGES],
            right: std::array::from_fn(|page| Words::word(page as u64)),
            given_up: [false; PAGES],
            unread: Vec::new(),
            late: Vec::new(),
            discard: None,
            waits: [None; PROCESSORS],
            deadly: 0,
            journal: Vec::new(),
            under_way: None,
            heir_at: None,
        }
    }
}

/// Runs a seed to its end.
fn run(seed: u64, twin: Twin) {
    let mut random = Random::new(seed);
    let mut image = Words {
        unreadable: Cell::new((random.below(3) == 0).then(|| any_page(&mut random))),
        recorded: random.below(4) == 0,
        set: HashSet::new(),
    };
    for _ in 0..random.below(40) {
        image.set.insert(any_page(&mut random));
    }
    let mut kernel = Kernel::new(twin, Random::new(random.word()));
    kernel.deadly = [0, 40, 12][random.below(3) as usize];
    let mut server = Server::new(Kept::new());
    for turn in 0..1500 {
        let is_over = turn > 1200;
        match random.below(8) {
            0..=3 => {
                let processor = random.below(PROCESSORS as u64) as usize;
                if !is_over || kernel.waits[processor].is_some() {
                    kernel.touch(processor);
                }
            }
            // What has begun goes on.
            4 if !is_over || kernel.discard.is_some() => kernel.discard(),
            _ if server.next == Next::Now
                || !kernel.unread.is_empty()
                || !kernel.late.is_empty() =>
            {
                server.step(&mut kernel, &image, turn);
            }
            _ if twin != Twin::NoTimer || server.guest.is_none() => {
                server.step(&mut kernel, &image, turn);
            }
            _ => {}
        }
        if is_over {
            image.unreadable.set(None);
            kernel.deadly = 0;
            if turn == 1400 {
                let waits = kernel.waits.iter().flatten().count();
                assert_eq!(waits, 0, "somebody waits, and nothing will happen");
                server.guest.as_mut().expect("one has taken over").put_in_all();
                server.next = Next::Now;
            }
        }
    }
    assert!(kernel.discard.is_none(), "the discard does not go on");
    let mut given_up = [false; PAGES];
    for page in given_up_of(&regions(), &server.bits).flatten() {
        given_up[page as usize] = true;
    }
    assert!(given_up == kernel.given_up, "what was given up");
    let guest = server.guest.expect("it lives");
    assert!(guest.oldest().is_none() && guest.is_complete() && guest.given.strays_total == 0);
    for page in 0..PAGES {
        let found = kernel.pages[page].unwrap_or(0);
        assert_eq!(found, kernel.right[page], "page {page} at the end");
    }
}

/// Seeds, unless `ZFOLD_SIM_SEEDS` says how many.
fn seeds() -> Range<u64> {
    if let Ok(seed) = std::env::var("ZFOLD_SIM_SEED") {
        let seed = seed.parse().expect("a number");
        return seed..seed + 1;
    }
    let seeds = std::env::var("ZFOLD_SIM_SEEDS").ok();
    0..seeds.map_or(400, |seeds| seeds.parse().expect("a number"))
}

#[test]
fn no_read_is_wrong_and_nobody_waits_for_ever() {
    for seed in seeds() {
        let outcome = std::panic::catch_unwind(|| run(seed, Twin::None));
        assert!(outcome.is_ok(), "seed {seed}: replay it with ZFOLD_SIM_SEED={seed}");
    }
}

/// A page that cannot be read, and a border of mappings, keep none of their neighbours away.
#[test]
fn all_is_put_in_but_what_cannot_be_read() {
    let unreadable = LARGE as u64 + 5;
    let image =
        Words { unreadable: Cell::new(Some(unreadable)), recorded: false, set: HashSet::new() };
    let (mut guest, mut kernel) = (guest(Kept::new()), Kernel::new(Twin::None, Random::new(1)));
    guest.put_in_all();
    while guest.step(&mut kernel, &image, 0) != Next::Idle {}
    let missing: Vec<_> = (0..PAGES).filter(|&page| kernel.pages[page].is_none()).collect();
    assert_eq!((missing.len(), missing[0]), (1, unreadable as usize));
    image.unreadable.set(None);
    guest.put_in_all();
    while guest.step(&mut kernel, &image, 0) != Next::Idle {}
    assert!(guest.is_complete());
    let wrong = (0..PAGES).find(|&page| kernel.pages[page] != Some(kernel.right[page]));
    assert_eq!(wrong, None);
    let given = guest.given;
    assert_eq!(
        (given.copied_pages_total + given.zero_pages_total, given.faults_total),
        (PAGES as u64, 0)
    );
}

#[test]
fn every_broken_twin_is_caught() {
    let twins = [
        Twin::DiscardsLate,
        Twin::NoWake,
        Twin::AgainIsDone,
        Twin::NoTimer,
        Twin::Twice,
        Twin::Unread,
        Twin::NoWakeAfter,
        Twin::OldBits,
        Twin::Overlap,
        Twin::Closed,
    ];
    let missed: Vec<_> = twins
        .into_iter()
        .filter(|&twin| (0..400).all(|seed| std::panic::catch_unwind(|| run(seed, twin)).is_ok()))
        .collect();
    assert!(missed.is_empty(), "not caught: {missed:?}");
}
