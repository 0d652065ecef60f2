//! A guest: its messages, the faults that wait, and which pages to put in next.
//!
//! - U1: all messages that were read are processed before one is answered, discards before faults
//!   (G2).
//! - U2: a fault is in `waiting` from when it is read until its page is there, or its thread was
//!   woken (G3).
//! - U3: a unit is settled when the kernel says that its page is there, or that the guest gave it
//!   up, and not before (G1).
//! - U4: the bits and the last messages read outlive this process. All messages are processed
//!   before others are read over them; processing a discard twice does no harm.

use std::collections::VecDeque;
use std::ops::Range;

use rustix::io::Errno;
use zfold_uffd::page::PAGE;
use zfold_uffd::{Event, Partial};

use super::ahead::Ahead;
use super::fault::{Fault, Filled, Given, Next, Put, Why};
use super::regions::Region;
use super::space::{Image, Space, copy_around, load};
use super::table::{Bits, Place, Table};

/// Pages that are copied between two reads of the guest's messages, and runs of pages that are
/// copied or are zeros: where both alternate, a run has few.
const PIECE: u64 = 16;
const RUNS: u64 = 16;

/// So many times as many of the working set: the sooner all of it is there, the fewer faults come.
const OF_SET: u64 = 4;

/// Units of zeros that are mapped by one call. They cost hardly any time, and no memory.
const ZEROS: u64 = 64;

/// How long filling gives way to a guest that asks for pages, from each fault on, in nanoseconds:
/// longer than a guest takes from an answer to its next fault. And for how many faults in a row:
/// one that asks all the time is filled, too.
pub(super) const GIVES_WAY_NS: u64 = 200_000;
pub(super) const GIVES_WAY: u32 = 64;

/// A guest; see the [module](self).
#[derive(Debug)]
pub(crate) struct Guest {
    table: Table,
    events: Vec<Event>,
    waiting: Vec<Fault>,
    ahead: Ahead,
    /// Read-ahead windows that are not put in yet.
    windows: VecDeque<Range<u64>>,
    /// The unit from which to continue with the working set.
    wanted: Option<u64>,
    /// All missing pages are put in, not only the working set.
    all: bool,
    /// They are to be, when the working set is there; pages that were put in for that since the
    /// count was taken; and when the next may be, in nanoseconds.
    fills: bool,
    pub(crate) filled: u64,
    pub(crate) due: u64,
    /// Faults in a row for which that gave way.
    gave_way: u32,
    buffer: Vec<u8>,
    /// The address of the first fault outside of all regions.
    pub(crate) first_stray: Option<usize>,
    pub(crate) given: Given,
}

impl Guest {
    /// Returns a guest with these regions, which are sorted, and what is settled of it.
    pub(crate) fn new(regions: Vec<Region>, settled: Box<dyn Bits>) -> Self {
        Self {
            table: Table::new(regions, settled),
            events: Vec::new(),
            waiting: Vec::new(),
            ahead: Ahead::default(),
            windows: VecDeque::new(),
            wanted: Some(0),
            all: false,
            fills: false,
            filled: 0,
            due: 0,
            gave_way: 0,
            buffer: Vec::new(),
            first_stray: None,
            given: Given::default(),
        }
    }

    /// Takes over from a server that was lost: `given_up` is from its last messages; threads that
    /// wait for an answer to others of them ask again (U4).
    pub(crate) fn take_over(
        &mut self,
        given_up: impl Iterator<Item = Range<usize>>,
        space: &mut impl Space,
    ) {
        given_up.for_each(|of| self.table.discard(&of));
        self.table.regions().iter().for_each(|region| space.wake(region.at.clone()));
    }

    /// Has all missing pages put in when there is nothing more urgent.
    pub(crate) fn put_in_all(&mut self) {
        (self.all, self.fills, self.due) = (true, false, 0);
        self.wanted = Some(0);
    }

    /// Has all missing pages put in behind the working set, none before `due`.
    pub(crate) fn fill(&mut self) {
        self.fills = !self.all;
        self.wanted = self.wanted.or(Some(0));
    }

    /// Returns whether no page is to come from the image.
    pub(crate) fn is_complete(&self) -> bool {
        self.table.left() == 0 && self.waiting.is_empty()
    }

    /// Returns how many pages there are, and how many of them are still to come from the image.
    pub(crate) fn pages(&self) -> (u64, u64) {
        (self.table.units(), self.table.left())
    }

    /// Returns whether it is only to be filled, which waits until `due`.
    pub(crate) fn is_paced(&self, now: u64) -> bool {
        self.windows.is_empty() && now < self.due
    }

    pub(crate) fn regions(&self) -> &[Region] {
        self.table.regions()
    }

    /// Returns the fault that waits longest.
    pub(crate) fn oldest(&self) -> Option<&Fault> {
        self.waiting.iter().min_by_key(|fault| fault.since)
    }

    /// Processes the guest's messages, and does what is most urgent; `now` is in nanoseconds.
    pub(crate) fn step(&mut self, space: &mut impl Space, image: &impl Image, now: u64) -> Next {
        space.read(&mut self.events);
        self.take_in(now);
        let faults = self.given.faults_total;
        if self.answer(space, image).is_err() {
            return Next::Gone;
        }
        if self.given.faults_total > faults {
            self.give_way(now);
        }
        if self.waiting.iter().any(|fault| fault.why == Why::Discard) {
            return Next::Soon;
        }
        let (copied, all, mut runs) = (self.given.copied_pages_total, self.all, 0);
        let times = if all || !self.windows.is_empty() { 1 } else { OF_SET };
        let more = loop {
            match self.beforehand(space, image, now) {
                Filled::Gone => return Next::Gone,
                Filled::Again(_) => return Next::Soon,
                Filled::To(_) => runs += 1,
            }
            let more = !self.windows.is_empty() || self.wanted.is_some();
            let is_enough =
                runs >= RUNS * times || self.given.copied_pages_total - copied >= PIECE * times;
            // What fills a guest waits for its time behind the working set.
            if !more || is_enough || self.all != all || self.is_paced(now) {
                break more;
            }
        };
        match (more, self.waiting.is_empty()) {
            (true, _) => Next::Now,
            (false, false) => Next::Later,
            (false, true) => Next::Idle,
        }
    }

    /// Has what fills the guest, behind the working set, wait for its next fault.
    fn give_way(&mut self, now: u64) {
        if self.fills && self.all && self.gave_way < GIVES_WAY {
            self.gave_way += 1;
            self.due = self.due.max(now + GIVES_WAY_NS);
        }
    }

    /// Processes all messages (U1).
    fn take_in(&mut self, now: u64) {
        for event in std::mem::take(&mut self.events) {
            match event {
                Event::Discarded(of) | Event::Unmapped(of) => {
                    self.given.discards_total += 1;
                    self.table.discard(&of);
                }
                Event::Missing { address, .. } => self.ask(address, now),
                _ => {}
            }
        }
    }

    fn ask(&mut self, address: usize, now: u64) {
        let Some(Place { unit, at, page, .. }) = self.table.find(address) else {
            self.given.strays_total += 1;
            self.first_stray.get_or_insert(address);
            return;
        };
        // Several processors wait for one page.
        if let Some(fault) = self.waiting.iter_mut().find(|fault| fault.unit == unit) {
            fault.is_asked = true;
            return;
        }
        let (done, why) = (0, Why::New);
        self.waiting.push(Fault { unit, done, is_asked: true, since: now, why, at, page });
    }

    /// Answers the faults that wait, as far as possible (U2).
    fn answer(&mut self, space: &mut impl Space, image: &impl Image) -> Result<(), ()> {
        for mut fault in std::mem::take(&mut self.waiting) {
            // The kernel has just refused another one, and takes nothing now.
            if self.waiting.last().is_some_and(|before| before.why == Why::Discard) {
                self.waiting.push(Fault { why: Why::Discard, ..fault });
                continue;
            }
            let is_first = !self.table.is_settled(fault.unit);
            match self.put(&fault, space, image) {
                Put::Gone => return Err(()),
                Put::Waits(done, why) => {
                    self.given.retries_total += u64::from(why == Why::Discard);
                    (fault.done, fault.why) = (done, why);
                    self.waiting.push(fault);
                }
                Put::Done if !fault.is_asked => self.given.beforehand_pages_total += 1,
                Put::Done => {
                    space.answered(fault.since);
                    self.given.faults_total += 1;
                    if is_first {
                        self.note(fault.unit, image);
                    }
                }
            }
        }
        Ok(())
    }

    /// Puts in the page that a thread waits for.
    fn put(&mut self, fault: &Fault, space: &mut impl Space, image: &impl Image) -> Put {
        let place = self.table.place(fault.unit);
        let zeros = self.is_zero(place, image);
        let result = if zeros && place.len == PAGE {
            space.zero(place.at..place.at + PAGE)
        } else {
            let bytes = room(&mut self.buffer, place.len, zeros);
            if !zeros && let Err(error) = load(image, place.page, bytes) {
                return Put::Waits(fault.done, Why::Load(error));
            }
            copy_around(space, place.at, bytes, fault.done)
        };
        let Err(Partial { done, error }) = result else {
            self.count(zeros, place.len, 0);
            self.table.settle(place.unit);
            if fault.done > 0 {
                // The page was there when it was asked for, and may have gone since.
                space.wake(place.at..place.at + place.len);
            }
            return Put::Done;
        };
        match error {
            Errno::SRCH => Put::Gone,
            Errno::EXIST | Errno::NOENT => {
                self.table.settle(place.unit);
                space.wake(place.at..place.at + place.len);
                Put::Done
            }
            Errno::AGAIN => Put::Waits(fault.done + done, Why::Discard),
            error => Put::Waits(fault.done + done, Why::Kernel(error)),
        }
    }

    /// Returns whether a unit is zeros: it is settled, or the image has zeros there.
    fn is_zero(&self, place: Place, image: &impl Image) -> bool {
        let mut pages = place.page..place.page + (place.len / PAGE) as u64;
        self.table.is_settled(place.unit) || pages.all(|page| image.is_zero(page))
    }

    /// Records that a page was asked for, or has the pages after it put in.
    fn note(&mut self, unit: u64, image: &impl Image) {
        let place = self.table.place(unit);
        let pages = place.page..place.page + (place.len / PAGE) as u64;
        if image.is_recorded() {
            pages.for_each(|page| image.touched(page));
            return;
        }
        if place.len > PAGE {
            return;
        }
        let end = self.table.region(unit).units().end;
        let mut window = self.ahead.window(unit, end);
        if image.is_zero(place.page) {
            let most = (unit + ZEROS).min(end);
            let is_zero = |unit: &u64| image.is_zero(place.page + (unit - place.unit));
            let zeros = (window.end..most).take_while(is_zero).count() as u64;
            self.ahead.extend(&window, window.end + zeros);
            window.end += zeros;
        }
        if !window.is_empty() {
            self.windows.push_back(window);
        }
    }

    /// Puts in some pages that nobody has asked for yet: of a window, otherwise of the working set.
    fn beforehand(&mut self, space: &mut impl Space, image: &impl Image, now: u64) -> Filled {
        if let Some(window) = self.windows.pop_front() {
            let filled = self.put_in(window.clone(), space, image, now);
            if let Filled::To(rest) | Filled::Again(rest) = filled
                && rest < window.end
            {
                self.windows.push_front(rest..window.end);
            }
            return filled;
        }
        if now < self.due {
            return Filled::To(0);
        }
        let Some(run) = self.wanted.and_then(|unit| self.next_run(unit, image)) else {
            let more = self.fills && !self.all;
            self.all |= self.fills;
            self.wanted = more.then_some(0);
            return Filled::To(0);
        };
        let first = self.table.place(run.start);
        let filled = self.put_in(run, space, image, now);
        if let Filled::To(rest) | Filled::Again(rest) = filled {
            (self.wanted, self.gave_way) = (Some(rest), 0);
            let pages = (first.len / PAGE) as u64;
            self.filled += if self.fills { (rest - first.unit) * pages } else { 0 };
        }
        filled
    }

    /// Returns the next unsettled units of the working set, at most `PIECE`.
    fn next_run(&self, from: u64, image: &impl Image) -> Option<Range<u64>> {
        let mut unit = self.table.next_unsettled(from)?;
        loop {
            let region = self.table.region(unit);
            let end = region.units().end;
            let next = match self.all {
                true => Some(unit),
                false => {
                    let page = self.table.place(unit).page;
                    let wanted = image.next_wanted(page).unwrap_or(u64::MAX);
                    let next = unit.saturating_add(wanted.saturating_sub(page) / region.pages());
                    (next < end).then_some(next)
                }
            };
            match next {
                Some(next) if !self.table.is_settled(next) => {
                    let most = (next + PIECE).min(end);
                    let is_wanted = |unit: &u64| {
                        let page = self.table.place(*unit).page;
                        let is_near = |found: u64| found - page < region.pages();
                        image.next_wanted(page).is_some_and(is_near)
                    };
                    let len = match self.all {
                        true => most - next,
                        false => (next..most).take_while(is_wanted).count() as u64,
                    };
                    return Some(next..next + len.max(1));
                }
                Some(next) => unit = self.table.next_unsettled(next)?,
                None => unit = self.table.next_unsettled(end)?,
            }
        }
    }

    /// Puts in pages at the beginning of a range that lies in one region.
    fn put_in(
        &mut self,
        range: Range<u64>,
        space: &mut impl Space,
        image: &impl Image,
        now: u64,
    ) -> Filled {
        let first = self.table.next_unsettled(range.start).filter(|first| *first < range.end);
        let Some(first) = first else { return Filled::To(range.end) };
        let place = self.table.place(first);
        if place.len > PAGE && self.waiting.iter().any(|fault| fault.unit == first) {
            // A part of it may be there.
            return Filled::To(first + 1);
        }
        let zeros = self.is_zero(place, image);
        let most = match (place.len, zeros) {
            (PAGE, true) => ZEROS,
            (PAGE, false) => PIECE,
            _ => 1,
        };
        let alike = |unit: &u64| {
            !self.table.is_settled(*unit) && self.is_zero(self.table.place(*unit), image) == zeros
        };
        let len = (first..range.end.min(first + most)).take_while(alike).count();
        let bytes = len * place.len;
        let result = if zeros && place.len == PAGE {
            space.zero(place.at..place.at + bytes)
        } else {
            let pages = room(&mut self.buffer, bytes, zeros);
            if !zeros && load(image, place.page, pages).is_err() {
                // A fault on the page that cannot be read will report it.
                return match len {
                    1 => Filled::To(first + 1),
                    _ => self.put_in(first..first + 1, space, image, now),
                };
            }
            space.copy(place.at, pages)
        };
        let done = result.map_or_else(|partial| partial.done, |()| bytes);
        let error = result.err().map(|partial| partial.error);
        let next = first + (done / place.len) as u64;
        (first..next).for_each(|unit| self.table.settle(unit));
        self.count(zeros, (next - first) as usize * place.len, next - first);
        match error {
            None => Filled::To(next),
            Some(Errno::SRCH) => Filled::Gone,
            // The kernel will repeat its answer for the rest.
            Some(_) if next > first => Filled::To(next),
            // An earlier server may have put in a part of a large unit.
            Some(error) if done > 0 || (error == Errno::EXIST && place.len > PAGE) => {
                let Place { at, page, .. } = place;
                let (is_asked, why) = (false, Why::Discard);
                let unit = first;
                self.waiting.push(Fault { unit, done, is_asked, since: now, why, at, page });
                Filled::Again(first + 1)
            }
            Some(Errno::AGAIN) => {
                self.given.retries_total += 1;
                Filled::Again(first)
            }
            // The pages lie in more than one mapping, or some were given up.
            Some(Errno::NOENT) if len > 1 => self.put_in(first..first + 1, space, image, now),
            Some(Errno::EXIST | Errno::NOENT) => {
                self.table.settle(first);
                Filled::To(first + 1)
            }
            Some(_) => Filled::To(range.end),
        }
    }

    fn count(&mut self, zeros: bool, bytes: usize, beforehand: u64) {
        match zeros {
            true => self.given.zero_pages_total += (bytes / PAGE) as u64,
            false => self.given.copied_pages_total += (bytes / PAGE) as u64,
        }
        self.given.beforehand_pages_total += beforehand;
    }
}

/// Returns `len` bytes of a buffer: zeros, or anything, to be written to.
fn room(buffer: &mut Vec<u8>, len: usize, zeros: bool) -> &mut [u8] {
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
    let bytes = &mut buffer[..len];
    if zeros {
        bytes.fill(0);
    }
    bytes
}
