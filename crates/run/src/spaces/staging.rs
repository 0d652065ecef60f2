//! The destinations of pages that are moved out: a staging for each protection that their memory
//! may have.
//!
//! Memory that can be read and written goes to the first one. Other memory is found from the
//! mappings when a move is refused, and corrected in the same way: the program may change a
//! protection at any time, without a message.

use std::io;
use std::ops::Range;

use crate::core::ranges::{PageNo, Pages, Ranges, bytes_of, common, pages_of};
use crate::sys::procmap::{self, READ, WRITE};
use zfold_uffd::page::page_len;

/// Most ranges that are known for a staging; beyond that all are forgotten.
const LEARNT_MAX: usize = 1024;

/// Why a page that was to be moved out was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stays {
    /// It is still there: a change is unread, or the kernel was using it.
    Again,
    /// It is shared with another process since a fork, or pinned.
    Busy,
    /// It cannot be moved: its mapping is not writable memory, or locked.
    Fixed,
    /// There is no such page.
    Absent,
}

/// A staging.
#[derive(Debug)]
struct Staging {
    protection: u8,
    range: Range<usize>,
    /// Memory of this protection, as far as known; none for the first.
    learnt: Ranges,
}

/// The stagings of an address space, by number; 0 is for plain memory.
#[derive(Debug)]
pub(crate) struct Stagings {
    /// A process that has this memory.
    pid: i32,
    all: Vec<Staging>,
    /// A bit for each in which pages may lie.
    dirty: u8,
}

impl Stagings {
    /// Returns these stagings, in which pages may lie; at most eight.
    pub(crate) fn new(pid: i32, plain: Range<usize>, others: Vec<(u8, Range<usize>)>) -> Self {
        let all = std::iter::once((READ | WRITE, plain))
            .chain(others)
            .map(|(protection, range)| Staging { protection, range, learnt: Ranges::default() });
        Self { pid, all: all.take(u8::BITS as usize).collect(), dirty: u8::MAX }
    }

    /// Returns where they are.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = &Range<usize>> {
        self.all.iter().map(|staging| &staging.range)
    }

    /// Returns the number of the staging of a protection.
    pub(crate) fn of(&self, protection: u8) -> Option<usize> {
        self.all.iter().position(|staging| staging.protection == protection)
    }

    /// Returns the address of a slot of a staging.
    pub(crate) fn slot(&self, number: usize, at: usize) -> usize {
        self.all[number].range.start + at * page_len()
    }

    /// Returns in which stagings pages may lie, and marks them as empty.
    pub(crate) fn take_dirty(&mut self) -> u8 {
        std::mem::take(&mut self.dirty)
    }

    /// Records that pages may lie in these stagings.
    pub(crate) fn set_dirty(&mut self, of: u8) {
        self.dirty |= of;
    }

    /// Returns whether any memory other than plain is known.
    pub(crate) fn has_learnt(&self) -> bool {
        self.all.iter().any(|staging| !staging.learnt.is_empty())
    }

    /// Cuts pages into parts that go to one staging each, in order, as far as is known.
    pub(crate) fn split(&self, pages: &Pages) -> Vec<(Pages, usize)> {
        let mut parts: Vec<(Pages, usize)> = Vec::new();
        for page in pages.clone() {
            let into = self.into(page);
            match parts.last_mut() {
                Some((part, of)) if *of == into => part.end += 1,
                _ => parts.push((page..page + 1, into)),
            }
        }
        parts
    }

    fn into(&self, page: PageNo) -> usize {
        let knows = |staging: &Staging| staging.learnt.around(page).is_some();
        self.all.iter().position(knows).unwrap_or(0)
    }

    /// Returns where pages that a staging refused should go, from their mappings, in order. A
    /// message will report pages that are not mapped.
    ///
    /// # Errors
    /// The mappings cannot be read.
    ///
    /// # Cost
    /// That of [`procmap::touching`].
    pub(crate) fn look_up(
        &mut self,
        pages: &Pages,
        refused: usize,
    ) -> io::Result<Vec<(Pages, Result<usize, Stays>)>> {
        let mut parts = Vec::new();
        let mut from = pages.start;
        for vma in procmap::touching(self.pid, &bytes_of(pages))? {
            let mapping = pages_of(&vma.range);
            let part = common(&mapping, pages);
            if from < part.start {
                parts.push((from..part.start, Err(Stays::Again)));
            }
            from = part.end;
            let into = self.of(vma.protection).filter(|_| vma.private);
            self.learn(&mapping, into);
            let goes = into.filter(|&into| into != refused || part != *pages);
            parts.push((part, goes.ok_or(Stays::Fixed)));
        }
        if from < pages.end {
            parts.push((from..pages.end, Err(Stays::Again)));
        }
        Ok(parts)
    }

    fn learn(&mut self, pages: &Pages, into: Option<usize>) {
        for (number, staging) in self.all.iter_mut().enumerate().skip(1) {
            if into != Some(number) {
                staging.learnt.remove(pages);
                continue;
            }
            if staging.learnt.iter().count() > LEARNT_MAX {
                staging.learnt = Ranges::default();
            }
            staging.learnt.insert(pages.clone());
        }
    }
}
