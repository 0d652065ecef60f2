//! The kernel of the simulation of pages that leave, and those who act between its calls.

use std::cell::Cell;
use std::ops::Range;
use std::panic::resume_unwind;

use rustix::io::Errno;
use zfold_store::LoadError;
use zfold_testing::Random;
use zfold_uffd::page::PAGE;
use zfold_uffd::policy::{Clock, Era};
use zfold_uffd::{Event, Partial};

use super::evict::Broken;
use super::space::{Files, Image, Space};
use super::succession::Killed;

pub(super) const BASE: usize = 1 << 30;
pub(super) const PAGES: usize = 48;
/// The border of two regions.
pub(super) const MIDDLE: usize = 20;
pub(super) const PROCESSORS: usize = 3;

/// A step of the kernel that is broken, or one of the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Twin {
    None,
    /// Nothing is protected.
    Unprotected,
    /// Who waits to write is not woken.
    NoWake,
    /// Who takes over believes that what is in the file is out.
    StillOut,
    Core(Broken),
}

/// Every third page is zeros.
pub(super) struct Words;

impl Words {
    fn word(page: u64) -> u64 {
        if page.is_multiple_of(3) { 0 } else { 1000 + page }
    }
}

impl Image for Words {
    fn is_zero(&self, page: u64) -> bool {
        Self::word(page) == 0
    }

    fn load(&self, page: u64, into: &mut [u8]) -> Result<(), LoadError> {
        into.fill(0);
        into[..8].copy_from_slice(&Self::word(page).to_le_bytes());
        Ok(())
    }

    fn is_recorded(&self) -> bool {
        false
    }

    fn touched(&self, _: u64) {}

    fn next_wanted(&self, _: u64) -> Option<u64> {
        None
    }
}

/// A page of the file, and how the guest has it.
#[derive(Clone, Copy, Default)]
pub(super) struct Page {
    /// What is in the file.
    pub(super) word: Option<u64>,
    pub(super) mapped: bool,
    pub(super) protected: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    Blocked,
    LooksAgain,
}

pub(super) struct Kernel {
    pub(super) twin: Twin,
    pub(super) random: Random,
    pub(super) pages: [Page; PAGES],
    pub(super) right: [u64; PAGES],
    pub(super) kept: [Option<u64>; PAGES],
    pub(super) unread: Vec<Event>,
    pub(super) waits: [Option<(usize, bool, Wait)>; PROCESSORS],
    /// A discard that is under way: whether it was read.
    pub(super) discard: Option<(Range<usize>, bool)>,
    /// One of so many calls is the last one of a server; none if it is 0.
    pub(super) deadly: u64,
    /// Somebody else maps the file, and touches what is not there.
    pub(super) others: bool,
    /// What was given up by the messages that were read last.
    pub(super) journal: Vec<Range<usize>>,
    pub(super) room: Cell<bool>,
    pub(super) clock: Clock,
    pub(super) touches: u64,
    /// Calls that protected pages, and calls that took them out.
    pub(super) protects: u64,
    pub(super) punches: u64,
    /// Nobody does anything between two calls.
    pub(super) is_quiet: bool,
}

fn bytes(word: u64) -> [u8; PAGE] {
    let mut page = [0; PAGE];
    page[..8].copy_from_slice(&word.to_le_bytes());
    page
}

fn word(page: &[u8]) -> u64 {
    u64::from_le_bytes(page[..8].try_into().expect("8 bytes"))
}

impl Kernel {
    pub(super) fn new(twin: Twin, mut random: Random) -> Self {
        // Nobody tells what others have put into the file from what a server was killed over.
        let (others, deadly) =
            [(false, 0), (true, 0), (false, 60), (false, 15)][random.below(4) as usize];
        Self {
            twin,
            pages: [Page::default(); PAGES],
            right: std::array::from_fn(|page| Words::word(page as u64)),
            kept: [None; PAGES],
            unread: Vec::new(),
            waits: [None; PROCESSORS],
            discard: None,
            deadly,
            others,
            journal: Vec::new(),
            room: Cell::new(true),
            clock: Clock::default(),
            touches: 0,
            protects: 0,
            punches: 0,
            is_quiet: false,
            random,
        }
    }

    /// Others do something between two calls, and perhaps the server is killed.
    fn call(&mut self) {
        if self.is_quiet {
            return;
        }
        for _ in 0..self.random.below(3) {
            self.act();
        }
        if self.deadly > 0 && self.random.below(self.deadly) == 0 {
            resume_unwind(Box::new(Killed));
        }
    }

    pub(super) fn act(&mut self) {
        match self.random.below(20) {
            0 => self.discard(),
            1 => {
                let page = &mut self.pages[self.random.below(PAGES as u64) as usize];
                // The kernel takes it out of the guest's tables, as under pressure.
                page.mapped = false;
            }
            2 if self.others => {
                let page = &mut self.pages[self.random.below(PAGES as u64) as usize];
                page.word.get_or_insert(0);
            }
            _ => {
                let processor = self.random.below(PROCESSORS as u64) as usize;
                self.touch(processor);
            }
        }
    }

    /// A processor reads or writes a page: that for which it waits, or any.
    pub(super) fn touch(&mut self, processor: usize) {
        let (number, writes) = match self.waits[processor] {
            Some((_, _, Wait::Blocked)) => return,
            Some((page, writes, Wait::LooksAgain)) => (page, writes),
            None => (self.random.below(PAGES as u64) as usize, self.random.below(2) == 0),
        };
        let page = &mut self.pages[number];
        let address = BASE + number * PAGE + 9;
        let event = match page.word {
            None => Some(Event::Missing { address, thread: 0, writes: false }),
            Some(_) if !page.mapped => Some(Event::Unlinked { address }),
            Some(_) if writes && page.protected => Some(Event::Protected { address }),
            Some(_) => None,
        };
        if let Some(event) = event {
            self.unread.push(event);
            self.waits[processor] = Some((number, writes, Wait::Blocked));
            return;
        }
        self.waits[processor] = None;
        self.touches += 1;
        let found = page.word.expect("as above");
        let is_given_up = self.discard.as_ref().is_some_and(|(pages, _)| pages.contains(&number));
        if is_given_up && found == 0 {
            self.right[number] = 0;
        }
        assert_eq!(found, self.right[number], "page {number}");
        if writes {
            // Now and then what the image has.
            let word = match self.random.below(3) {
                0 => Words::word(number as u64),
                _ => 5000 + self.random.below(1000),
            };
            (page.word, self.right[number]) = (Some(word), word);
        }
    }

    pub(super) fn discard(&mut self) {
        match self.discard.take() {
            None => {
                let from = self.random.below(PAGES as u64) as usize;
                let pages = from..(from + 1 + self.random.below(4) as usize).min(PAGES);
                let at = |page: usize| BASE + page * PAGE;
                self.unread.push(Event::Discarded(at(pages.start)..at(pages.end)));
                self.discard = Some((pages, false));
            }
            Some((pages, true)) => {
                for page in pages {
                    (self.pages[page], self.right[page]) = (Page::default(), 0);
                }
            }
            unread => self.discard = unread,
        }
    }

    fn numbers(of: &Range<usize>) -> Range<usize> {
        (of.start - BASE) / PAGE..(of.end - BASE) / PAGE
    }

    fn look_again(&mut self, pages: Range<usize>) {
        for wait in self.waits.iter_mut().flatten() {
            if pages.contains(&wait.0) {
                wait.2 = Wait::LooksAgain;
            }
        }
    }

    fn is_changing(&self) -> bool {
        self.discard.is_some()
    }

    fn fill(&mut self, at: usize, words: &[u64]) -> Result<(), Partial> {
        let first = (at - BASE) / PAGE;
        for (n, word) in words.iter().enumerate() {
            let stop = |error| Err(Partial { done: n * PAGE, error });
            if self.is_changing() {
                return stop(Errno::AGAIN);
            }
            if self.pages[first + n].word.is_some() {
                return stop(Errno::EXIST);
            }
            self.pages[first + n] = Page { word: Some(*word), mapped: true, protected: false };
            self.look_again(first + n..first + n + 1);
        }
        Ok(())
    }

    /// Returns where pages are in the file.
    pub(super) fn present(&self) -> Vec<Range<usize>> {
        let at = |page: usize| BASE + page * PAGE;
        let is = |page: &usize| self.pages[*page].word.is_some();
        (0..PAGES).filter(is).map(|page| at(page)..at(page + 1)).collect()
    }
}

impl Space for Kernel {
    fn read(&mut self, into: &mut Vec<Event>) {
        self.call();
        self.journal.clear();
        for event in &self.unread {
            if let Event::Discarded(of) = event {
                self.journal.push(of.clone());
            }
        }
        if let Some((_, read)) = &mut self.discard {
            *read |= !self.journal.is_empty();
        }
        into.append(&mut self.unread);
        self.call();
    }

    fn copy(&mut self, to: usize, pages: &[u8]) -> Result<(), Partial> {
        self.call();
        let words: Vec<_> = pages.chunks(PAGE).map(word).collect();
        let filled = self.fill(to, &words);
        self.call();
        filled
    }

    fn zero(&mut self, of: Range<usize>) -> Result<(), Partial> {
        self.call();
        let filled = self.fill(of.start, &vec![0; of.len() / PAGE]);
        self.call();
        filled
    }

    fn wake(&mut self, of: Range<usize>) {
        self.look_again(Self::numbers(&of));
    }

    fn answered(&mut self, _: u64) {}
}

impl Files for Kernel {
    fn protect(&mut self, of: Range<usize>, on: bool) -> Result<(), Errno> {
        self.call();
        self.protects += u64::from(on);
        if self.is_changing() {
            return Err(Errno::AGAIN);
        }
        let numbers = Self::numbers(&of);
        for page in &mut self.pages[numbers.clone()] {
            page.protected = on && self.twin != Twin::Unprotected;
        }
        if !on && self.twin != Twin::NoWake {
            self.look_again(numbers);
        }
        self.call();
        Ok(())
    }

    fn link(&mut self, of: Range<usize>) -> Result<(), Errno> {
        self.call();
        if self.is_changing() {
            return Err(Errno::AGAIN);
        }
        let numbers = Self::numbers(&of);
        let page = &mut self.pages[numbers.start];
        match page.word {
            None => return Err(Errno::FAULT),
            Some(_) if page.mapped => return Err(Errno::EXIST),
            Some(_) => (page.mapped, page.protected) = (true, false),
        }
        self.look_again(numbers);
        self.call();
        Ok(())
    }

    fn fetch(&mut self, at: usize, into: &mut [u8]) -> bool {
        self.call();
        let first = (at - BASE) / PAGE;
        if self.pages[first].word.is_none() {
            return false;
        }
        for (n, page) in into.chunks_mut(PAGE).enumerate() {
            page.copy_from_slice(&bytes(self.pages[first + n].word.unwrap_or(0)));
        }
        self.call();
        true
    }

    fn punch(&mut self, of: Range<usize>) -> bool {
        self.call();
        self.punches += 1;
        self.pages[Self::numbers(&of)].fill(Page::default());
        self.call();
        true
    }

    fn patch(&mut self, at: usize, page: &[u8]) -> bool {
        self.call();
        self.pages[(at - BASE) / PAGE].word = Some(word(page));
        true
    }

    fn keep(&mut self, unit: u64, page: &[u8]) -> bool {
        self.call();
        let room = self.room.get();
        if room {
            self.kept[unit as usize] = Some(word(page));
        }
        room
    }

    fn recall(&mut self, unit: u64, into: &mut [u8]) -> Result<(), LoadError> {
        let kept = self.kept[unit as usize].ok_or(LoadError::Dead)?;
        into.copy_from_slice(&bytes(kept));
        Ok(())
    }

    fn forget(&mut self, unit: u64) {
        self.kept[unit as usize] = None;
    }

    fn era(&self) -> Era {
        self.clock.now()
    }

    fn left(&mut self, pages: u64) {
        self.clock.advance(pages as usize, PAGES);
    }
}
