//! The core against a kernel of a few pages that is simulated here, with messages that are read
//! late and fills and moves that the kernel refuses meanwhile.
//!
//! What is checked is what a program sees: a page holds what it put there last, zeros if it never
//! did or gave it up, and of a page that it has given up nothing comes back.

mod twins;
mod work;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;
use zfold_uffd::policy::{Clock, Haste};

use super::loads::Loads;
use super::pages::told::bits_of;
use super::pages::{Key, Page, SlotNo};
use super::ranges::{PageNo, Pages, Ranges};
use super::space::{Answer, Space};

/// Pages of the address space.
const PAGES: usize = 24;

/// What was announced and is not read.
#[derive(Debug, Clone)]
enum Message {
    Unmapped(Pages),
    Moved(Pages, PageNo),
    Discarded(Pages),
}

/// What the kernel knows of a page that is mapped.
#[derive(Debug, Clone, Copy, Default)]
struct Mapped {
    registered: bool,
    /// What is in it; `None` if it is missing.
    content: Option<u32>,
    /// What the program put there last.
    expected: u32,
    /// The program has begun to give it up: it may see the old content or zeros.
    given_up: bool,
    /// It was not accessed through this mapping since it was marked.
    marked: bool,
}

#[derive(Default)]
struct World {
    kernel: BTreeMap<PageNo, Mapped>,
    queue: VecDeque<Message>,
    /// Discards whose message was read and that are still to be made.
    zaps: VecDeque<Pages>,
    space: Space,
    /// Content by key.
    store: BTreeMap<Key, u32>,
    /// Keys to be used anew, the last one first.
    free: Vec<Key>,
    /// Slots of pages that had marks.
    marked: BTreeSet<SlotNo>,
    /// Content by slot of the swap cache, and the page that it is of.
    cache: BTreeMap<SlotNo, (u32, PageNo)>,
    /// Slots that threads work on, what they found the copy to be, and whether it was the same.
    works: Vec<(SlotNo, Option<Key>, bool)>,
    /// Loads for a page that have begun: their numbers, and what was read.
    loads: Vec<(PageNo, Loads, u64, Vec<u32>)>,
    next: u32,
    clock: Clock,
    /// The twin: pages that are about to be given up may leave.
    breaks_doom: bool,
    /// The twin: the kernel does as it is told also while messages are not read.
    breaks_order: bool,
    /// The twin: a copy is what the page is, unseen.
    breaks_compare: bool,
    /// The twin: a page that still has its mark is what its copy is.
    breaks_marks: bool,
    /// The twin: a copy that was the same is so still, whoever has it by now.
    breaks_kept: bool,
    /// The twin: a key that nobody names is free, whoever reads it.
    breaks_load: bool,
    /// The twin: as much has moved as was reported.
    breaks_length: bool,
    /// The twin: what is hot is spared, whatever else there is.
    breaks_haste: bool,
}

#[derive(Debug, Clone)]
enum Op {
    Map(PageNo, usize),
    Unmap(PageNo, usize),
    Discard(PageNo, usize),
    /// What is moved, to where, and how much of it at most.
    Move(PageNo, usize, PageNo, usize),
    Close(PageNo, usize),
    /// An attempt to close fails; meanwhile a thread begins to discard all of it.
    Refused(PageNo, usize),
    Write(PageNo),
    Look(PageNo),
    /// What is there is marked.
    Mark(PageNo, usize),
    /// A device writes to a page that is there, by itself.
    Device(PageNo),
    Evict(usize),
    /// A thread begins to store one of the pages of the swap cache.
    Begin(usize),
    /// One of these threads goes on.
    Store(usize),
    /// A thread begins to load a page that is in the store.
    Load(PageNo),
    /// One of these threads goes on.
    Loaded(usize),
    /// There is no room for so many copies.
    Drop(usize),
    Read,
    Zap,
    Settle,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let page = 0..PAGES;
    let len = 1..8_usize;
    let op = prop_oneof![
        2 => (page.clone(), len.clone()).prop_map(|(at, len)| Op::Map(at, len)),
        1 => (page.clone(), len.clone()).prop_map(|(at, len)| Op::Unmap(at, len)),
        2 => (page.clone(), len.clone()).prop_map(|(at, len)| Op::Discard(at, len)),
        2 => (page.clone(), len.clone(), page.clone(), len.clone())
            .prop_map(|(at, len, to, new)| Op::Move(at, len, to, new)),
        3 => (page.clone(), len.clone()).prop_map(|(at, len)| Op::Close(at, len)),
        1 => (page.clone(), len.clone()).prop_map(|(at, len)| Op::Refused(at, len)),
        6 => page.clone().prop_map(Op::Write),
        4 => page.clone().prop_map(Op::Look),
        2 => (page.clone(), len.clone()).prop_map(|(at, len)| Op::Mark(at, len)),
        2 => page.clone().prop_map(Op::Device),
        3 => page.prop_map(Op::Load),
        3 => (0..4_usize).prop_map(Op::Loaded),
        4 => (1..6_usize).prop_map(Op::Evict),
        4 => (0..6_usize).prop_map(Op::Begin),
        4 => (0..6_usize).prop_map(Op::Store),
        1 => (1..6_usize).prop_map(Op::Drop),
        4 => Just(Op::Read),
        2 => Just(Op::Zap),
        1 => Just(Op::Settle),
    ];
    prop::collection::vec(op, 1..120)
}

fn range(at: PageNo, len: usize) -> Pages {
    at..PAGES.min(at + len)
}

impl World {
    /// The kernel refuses fills and moves while a message is not read.
    fn refuses(&self) -> bool {
        !self.queue.is_empty() && !self.breaks_order
    }

    fn release(&mut self) {
        for key in self.space.take_free() {
            assert!(self.store.remove(&key).is_some(), "S3: key {key} is released twice");
            self.free.push(key);
        }
    }

    /// Puts content under a key.
    fn put(&mut self, content: u32) -> Key {
        let key = self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next
        });
        assert_eq!(self.store.insert(key, content), None, "S3: key {key} is in use");
        key
    }

    fn read(&mut self) {
        let Some(message) = self.queue.pop_front() else { return };
        match message {
            Message::Unmapped(pages) => self.space.unmapped(&pages),
            Message::Moved(from, to) => self.space.moved(&from, to, |slot, page| {
                self.cache.get_mut(&slot).expect("named by a state").1 = page;
            }),
            Message::Discarded(pages) => {
                self.zaps.push_back(pages.clone());
                self.space.doomed(&pages);
            }
        }
        self.release();
        if self.queue.is_empty() {
            self.space.set_moving(None);
        }
    }

    fn read_all(&mut self) {
        while !self.queue.is_empty() {
            self.read();
        }
    }

    /// The thread that discards goes on.
    fn zap(&mut self) {
        let Some(pages) = self.zaps.pop_front() else { return };
        for page in pages {
            if let Some(mapped) = self.kernel.get_mut(&page)
                && mapped.given_up
            {
                mapped.content = None;
                mapped.given_up = false;
                mapped.expected = 0;
            }
        }
    }

    fn unmap(&mut self, pages: &Pages) {
        let mut registered = false;
        for page in pages.clone() {
            registered |= self.kernel.remove(&page).is_some_and(|mapped| mapped.registered);
        }
        if registered {
            self.queue.push_back(Message::Unmapped(pages.clone()));
        }
    }

    /// A thread touches a page; returns what is there then.
    fn touch(&mut self, page: PageNo) -> Option<u32> {
        loop {
            let mapped = self.kernel.get_mut(&page)?;
            if let Some(content) = mapped.content {
                mapped.marked = false;
                return Some(content);
            }
            if !mapped.registered {
                self.kernel.get_mut(&page)?.content = Some(0);
                return Some(0);
            }
            self.serve(page);
        }
    }

    fn serve(&mut self, page: PageNo) {
        if self.refuses() {
            return self.read();
        }
        let answer = self.space.fault(page, 4);
        let fill = |world: &mut Self, page, content| {
            let mapped = world.kernel.get_mut(&page).expect("asked for");
            assert!(mapped.content.is_none());
            (mapped.content, mapped.marked) = (Some(content), false);
            world.space.filled(page, &(page..page + 1), true);
            world.release();
        };
        match answer {
            Answer::Check | Answer::Zero(_) => fill(self, page, 0),
            Answer::Stored(loads) => {
                assert!(loads.iter().any(|(at, _)| *at == page) && loads.len() <= 4);
                for (at, key) in loads {
                    let content = self.store[&key];
                    fill(self, at, content);
                }
            }
            Answer::Cached(run, slot) => {
                for at in run {
                    let slot = slot.wrapping_add(at.wrapping_sub(page) as SlotNo);
                    let (content, owner) = self.cache[&slot];
                    assert_eq!(owner, at);
                    fill(self, at, content);
                }
            }
            Answer::NoRoom => unreachable!("there is room"),
        }
        self.space.settled();
    }

    fn evict(&mut self, max: usize) -> Result<(), String> {
        if self.refuses() {
            return Ok(());
        }
        let mut victims = Vec::new();
        let kernel = &self.kernel;
        let look = |pages: &Pages| {
            let is_clear = |page: &PageNo| kernel.get(page).is_some_and(|mapped| !mapped.marked);
            Some(bits_of(pages.clone().filter(is_clear).map(|page| page..page + 1)))
        };
        self.space.watch();
        for round in 0..Haste::ROUNDS {
            let haste = Haste::after(if self.breaks_haste { 0 } else { round });
            self.space.pick(0, max, haste, |_| false, look, &mut victims);
        }
        if victims.is_empty() && (0..PAGES).any(|page| self.space.may_leave(page)) {
            return Err("no page is found that may leave".to_owned());
        }
        if self.breaks_doom {
            victims.extend(self.space.doomed_ranges().iter().flatten());
        }
        victims.sort_unstable();
        victims.dedup();
        for page in victims {
            let mapped = self.kernel.get_mut(&page);
            let marked = mapped.as_ref().is_some_and(|mapped| mapped.marked);
            let content = mapped.and_then(|mapped| mapped.content.take());
            match content {
                None | Some(0) => {
                    self.space.emptied(page);
                    self.release();
                }
                Some(content) => {
                    self.next += 1;
                    if marked {
                        self.marked.insert(self.next);
                    }
                    self.cache.insert(self.next, (content, page));
                    self.space.set(page, Page::Cached(self.next));
                }
            }
            self.clock.advance(1, PAGES / 2);
        }
        self.space.set_now(self.clock.now());
        self.space.settled();
        Ok(())
    }

    fn close(&mut self, pages: &Pages) {
        let mapped = pages.clone().all(|page| self.kernel.contains_key(&page));
        if !mapped || self.refuses() || !self.space.may_close(pages) {
            return;
        }
        let mut present = Ranges::default();
        for page in pages.clone() {
            let mapped = self.kernel.get_mut(&page).expect("seen above");
            // What is closed already may be among it.
            mapped.registered = true;
            if mapped.content.is_some() {
                present.insert(page..page + 1);
            }
        }
        self.space.close(pages, &present, 0);
    }

    /// A thread begins to give pages up, and tells of those that are registered; of all if they
    /// are `watched` for a moment.
    fn discard(&mut self, pages: Pages, watched: bool) {
        let mut told = Ranges::default();
        for page in pages {
            let Some(mapped) = self.kernel.get_mut(&page) else { continue };
            if mapped.registered || watched {
                mapped.given_up = true;
                told.insert(page..page + 1);
            } else {
                *mapped = Mapped::default();
            }
        }
        self.queue.extend(told.iter().map(Message::Discarded));
    }

    /// One mapping, closed as a whole or not at all, goes elsewhere, at most `most` pages of it;
    /// the rest is unmapped, and the kernel reports that all of it has moved.
    fn relocate(&mut self, from: &Pages, to: PageNo, most: usize) {
        let head = from.start..from.end.min(from.start + most);
        let target = to..to + head.len();
        let overlaps = to < from.end && from.start < target.end;
        let registered: Vec<_> =
            from.clone().filter_map(|page| Some(self.kernel.get(&page)?.registered)).collect();
        let uniform = registered.windows(2).all(|two| two[0] == two[1]);
        if overlaps || target.end > PAGES || registered.len() < from.len() || !uniform {
            return;
        }
        // A thread that moves waits for what it told before to be read.
        self.read_all();
        self.unmap(&target);
        self.read_all();
        for page in from.clone() {
            let mapped = self.kernel.remove(&page).expect("seen above");
            if head.contains(&page) {
                self.kernel.insert(page - from.start + to, mapped);
            }
        }
        if registered[0] {
            self.space.set_moving((!self.breaks_length).then_some(head.len()));
            self.queue.push_back(Message::Moved(from.clone(), to));
            if head.end < from.end {
                self.queue.push_back(Message::Unmapped(head.end..from.end));
            }
            self.queue.push_back(Message::Unmapped(head));
        }
    }

    fn run(&mut self, op: &Op) -> Result<(), String> {
        match *op {
            Op::Map(at, len) => {
                let pages = range(at, len);
                self.unmap(&pages);
                self.kernel.extend(pages.map(|page| (page, Mapped::default())));
            }
            Op::Unmap(at, len) => self.unmap(&range(at, len)),
            Op::Discard(at, len) => self.discard(range(at, len), false),
            Op::Move(at, len, to, most) => {
                // Nothing is being given up there: that would be the program's own race.
                let pages = range(at, len);
                while !self.queue.is_empty() || !self.zaps.is_empty() {
                    self.read();
                    self.zap();
                }
                self.relocate(&pages, to, most);
            }
            Op::Close(at, len) => self.close(&range(at, len)),
            Op::Refused(at, len) => self.discard(range(at, len), true),
            Op::Write(page) => {
                if self.kernel.get(&page).is_some_and(|mapped| !mapped.given_up)
                    && self.touch(page).is_some()
                {
                    self.change(page);
                }
            }
            Op::Look(page) => return self.look(page),
            Op::Mark(at, len) => range(at, len).for_each(|page| self.mark(page)),
            Op::Device(page) => self.change(page),
            Op::Evict(max) => return self.evict(max),
            Op::Begin(nth) => self.begin(nth),
            Op::Store(nth) => self.store(nth),
            Op::Load(page) => self.load(page),
            Op::Loaded(nth) => self.loaded(nth),
            Op::Drop(most) => self.drop_copies(most),
            Op::Read => self.read(),
            Op::Zap => self.zap(),
            Op::Settle => {
                self.read_all();
                while !self.zaps.is_empty() {
                    self.zap();
                }
                let wait = self.space.begin_wait();
                self.space.outlived(wait);
            }
        }
        Ok(())
    }

    fn look(&mut self, page: PageNo) -> Result<(), String> {
        let Some(before) = self.kernel.get(&page).copied() else { return Ok(()) };
        let Some(found) = self.touch(page) else { return Ok(()) };
        let right = found == before.expected || (before.given_up && found == 0);
        if right { Ok(()) } else { Err(format!("page {page} has {found}: {before:?}")) }
    }

    fn end(&mut self) -> Result<(), String> {
        self.run(&Op::Settle)?;
        while !self.works.is_empty() || !self.loads.is_empty() {
            self.store(0);
            self.loaded(0);
        }
        for page in 0..PAGES {
            self.look(page)?;
        }
        if self.queue.is_empty() && !self.breaks_doom && !self.breaks_order {
            self.space.check();
            let counts = self.space.counts();
            let named = counts.stored + counts.copied;
            assert_eq!(named, self.store.len(), "S3: what nobody names is released");
        }
        Ok(())
    }
}

fn play(world: &mut World, ops: &[Op]) -> Result<(), String> {
    ops.iter().try_for_each(|op| world.run(op))?;
    world.end()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Whatever is read late, the program sees its memory.
    #[test]
    fn a_program_sees_what_it_wrote(ops in ops()) {
        let mut world = World::default();
        prop_assert_eq!(play(&mut world, &ops), Ok(()));
    }
}
