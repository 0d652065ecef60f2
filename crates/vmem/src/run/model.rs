//! The core against a plain map of what a program wrote, with a kernel, a second-chance buffer
//! and a store that are maps, too. Evictions, changes and forks are cut in their parts, with
//! accesses of other threads in between.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use proptest::prelude::*;

use super::memory::Change;
use super::pages::{Key, Page, SlotNo};
use super::ranges::{PAGE, PageNo, Pages, Ranges, bytes_of};
use super::space::{Answer, Space};

/// Pages of the model's address space: three areas of 600, so that chunks are crossed.
const AREA: usize = 600;

/// What other threads and the evictor do in between.
#[derive(Debug, Clone)]
enum Small {
    Write(PageNo, u64),
    Read(PageNo),
    Pick(usize),
    Settle(u8),
    Retire(usize),
}

#[derive(Debug, Clone)]
enum Op {
    Small(Small),
    Map(Pages, bool),
    Unmap(Pages, bool, Vec<Small>),
    Discard(Pages, bool, Vec<Small>),
    /// From one area to another.
    Move {
        from: Pages,
        to: PageNo,
        len: usize,
        fails: bool,
        keep: bool,
        between: Vec<Small>,
    },
    Fork(Vec<Small>, Vec<Small>, bool),
}

fn area_range() -> impl Strategy<Value = Pages> {
    (0..3_usize, 0..AREA, 1..AREA)
        .prop_map(|(area, start, len)| area * AREA + start..area * AREA + AREA.min(start + len))
}

fn small() -> impl Strategy<Value = Small> {
    prop_oneof![
        4 => (0..3 * AREA, 0..9_u64).prop_map(|(page, value)| Small::Write(page, value)),
        3 => (0..3 * AREA).prop_map(Small::Read),
        3 => (1..200_usize).prop_map(Small::Pick),
        3 => any::<u8>().prop_map(Small::Settle),
        2 => (1..100_usize).prop_map(Small::Retire),
    ]
}

fn smalls() -> impl Strategy<Value = Vec<Small>> {
    prop::collection::vec(small(), 0..6)
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => small().prop_map(Op::Small),
        3 => (area_range(), any::<bool>()).prop_map(|(range, open)| Op::Map(range, open)),
        1 => (area_range(), any::<bool>(), smalls()).prop_map(|(r, f, s)| Op::Unmap(r, f, s)),
        2 => (area_range(), any::<bool>(), smalls()).prop_map(|(r, f, s)| Op::Discard(r, f, s)),
        1 => (area_range(), 0..2_usize, 1..AREA, any::<bool>(), any::<bool>(), smalls()).prop_map(
            |(from, area, len, fails, keep, between)| {
                let other = (from.start / AREA + 1 + area) % 3;
                let len = if keep { from.len() } else { len };
                Op::Move { from, to: other * AREA, len, fails, keep, between }
            }),
        1 => (smalls(), smalls(), any::<bool>()).prop_map(|(a, b, f)| Op::Fork(a, b, f)),
    ]
}

#[derive(Default)]
struct World {
    space: Space,
    /// What a program sees; 0 if never written.
    truth: BTreeMap<PageNo, u64>,
    /// Pages that are mapped.
    mapped: Ranges,
    /// Pages that are registered.
    registered: BTreeSet<PageNo>,
    /// Pages that are there.
    kernel: HashMap<PageNo, u64>,
    leaving: Vec<(PageNo, Option<u64>)>,
    chances: HashMap<SlotNo, (PageNo, u64)>,
    next_slot: SlotNo,
    hand: PageNo,
}

/// Pages by key, and how many spaces name the key.
#[derive(Default)]
struct Stored {
    pages: HashMap<Key, (u64, usize)>,
    next: Key,
}

impl Stored {
    fn release(&mut self, pages: &[(PageNo, Page)]) {
        for (_, state) in pages {
            if let Page::Stored(key) = state {
                let entry = self.pages.get_mut(key).expect("a named key is in use");
                entry.1 -= 1;
                if entry.1 == 0 {
                    self.pages.remove(key);
                }
            }
        }
    }
}

impl World {
    fn is_mapped(&self, page: PageNo) -> bool {
        self.mapped.around(page).is_some()
    }

    /// A thread touches a page; returns whether it has it. Not so in a flux, where it would wait.
    fn touch(&mut self, page: PageNo, store: &mut Stored) -> bool {
        for _ in 0..3 {
            if self.kernel.contains_key(&page) {
                return true;
            }
            if !self.registered.contains(&page) {
                self.kernel.insert(page, 0);
                return true;
            }
            match self.space.fault(page, 1000) {
                Answer::Later if self.leaving.is_empty() => return false,
                Answer::Later => self.settle(0, store),
                Answer::NoRoom | Answer::Unknown => panic!("page {page} is closed"),
                Answer::There => {
                    // A page that the kernel does not have and we think it has.
                    self.kernel.insert(page, 0);
                }
                Answer::Zero(pages) => {
                    for page in pages {
                        self.kernel.entry(page).or_insert(0);
                        self.space.arrived(page, Space::NEW);
                    }
                }
                Answer::Chance(slot) => {
                    let (owner, value) = self.chances.remove(&slot).unwrap();
                    assert_eq!(owner, page);
                    self.kernel.insert(page, value);
                    self.space.arrived(page, Space::BACK);
                }
                Answer::Stored(keys) => {
                    for (page, key) in (page..).zip(keys) {
                        self.kernel.entry(page).or_insert(store.pages[&key].0);
                        self.space.arrived(page, Space::NEW);
                        store.release(&[(page, Page::Stored(key))]);
                    }
                }
            }
        }
        panic!("page {page} does not come");
    }

    fn small(&mut self, small: &Small, store: &mut Stored) {
        match *small {
            Small::Write(page, value) if self.is_mapped(page) && self.touch(page, store) => {
                self.kernel.insert(page, value);
                self.truth.insert(page, value);
            }
            Small::Read(page) if self.is_mapped(page) && self.touch(page, store) => {
                let expected = self.truth.get(&page).copied().unwrap_or(0);
                assert_eq!(self.kernel[&page], expected, "page {page}");
            }
            Small::Pick(max) => {
                let mut victims = Vec::new();
                let next = self.space.pick(self.hand, max, &mut victims);
                self.hand = next.unwrap_or(0);
                // The helper moves them out.
                let out = victims.iter().map(|page| (*page, self.kernel.remove(page)));
                self.leaving.extend(out);
            }
            Small::Settle(how) => self.settle(how, store),
            Small::Retire(max) => self.retire(max, store),
            _ => {}
        }
    }

    fn settle(&mut self, how: u8, _: &mut Stored) {
        for (at, (page, value)) in std::mem::take(&mut self.leaving).into_iter().enumerate() {
            let state = match value {
                Some(value) if (at + how as usize).is_multiple_of(7) => {
                    self.kernel.insert(page, value);
                    Space::FIXED
                }
                None | Some(0) => Page::Absent,
                Some(value) => {
                    self.next_slot += 1;
                    self.chances.insert(self.next_slot, (page, value));
                    Page::Chance(self.next_slot)
                }
            };
            self.space.left(page, state);
        }
    }

    fn retire(&mut self, max: usize, store: &mut Stored) {
        let mut slots: Vec<_> = self.chances.keys().copied().collect();
        slots.sort_unstable();
        for slot in slots.into_iter().take(max) {
            let (page, value) = self.chances.remove(&slot).unwrap();
            assert!(self.space.holds(page, slot), "slot {slot} of page {page}");
            store.next += 1;
            store.pages.insert(store.next, (value, 1));
            assert!(self.space.stored(page, slot, store.next));
        }
    }

    /// Drops slots of pages that were given up, as the real buffer does when it retires them.
    fn drop_slots(&mut self, pages: &[(PageNo, Page)]) {
        for (_, state) in pages {
            if let Page::Chance(slot) = state {
                self.chances.remove(slot);
            }
        }
    }

    fn drop_from_kernel(&mut self, range: &Pages) {
        for page in range.clone() {
            self.kernel.remove(&page);
            self.truth.remove(&page);
        }
    }

    fn map(&mut self, range: &Pages, open: bool) {
        for part in self.mapped.without(range) {
            self.mapped.insert(part.clone());
            if !open {
                self.close(&part);
            }
        }
        // What is open may be closed at any time.
        let not_closed = self.space.closed().without(range);
        if !open {
            let parts: Vec<_> =
                not_closed.iter().flat_map(|part| self.mapped.within(part)).collect();
            parts.iter().for_each(|part| self.close(part));
        }
    }

    fn close(&mut self, part: &Pages) {
        self.registered.extend(part.clone());
        let present: Vec<_> = part
            .clone()
            .filter(|page| self.kernel.contains_key(page))
            .map(|page| page..page + 1)
            .collect();
        self.space.close(part, &present, 0);
    }

    fn begin(&mut self, change: &Change, ranges: &[Pages], store: &mut Stored) {
        if self.space.is_busy(ranges) {
            self.settle(1, store);
        }
        self.space.begin(change, ranges);
    }

    fn unmap(&mut self, range: &Pages, fails: bool, between: &[Small], store: &mut Stored) {
        let change = Change::Unmap { range: bytes_of(range) };
        self.begin(&change, std::slice::from_ref(range), store);
        self.others(range, between, store);
        if !fails {
            self.drop_from_kernel(range);
            self.mapped.remove(range);
            self.registered.retain(|page| !range.contains(page));
        }
        for taken in self.space.end(&change).unwrap().taken {
            if fails {
                self.space.put_back(taken);
            } else {
                store.release(&taken.pages);
                self.drop_slots(&taken.pages);
            }
        }
    }

    /// Other threads do not access what a thread gives up: that would be their own race.
    fn others(&mut self, range: &Pages, between: &[Small], store: &mut Stored) {
        for small in between {
            match small {
                Small::Read(page) | Small::Write(page, _) if range.contains(page) => {}
                small => self.small(small, store),
            }
        }
    }

    fn discard(&mut self, range: &Pages, fails: bool, between: &[Small], store: &mut Stored) {
        let change = Change::Discard { range: bytes_of(range) };
        self.begin(&change, std::slice::from_ref(range), store);
        self.others(range, between, store);
        if !fails {
            self.drop_from_kernel(range);
        }
        for page in range.clone() {
            if self.is_mapped(page) && self.registered.contains(&page) {
                assert_eq!(self.space.fault(page, 9), Answer::Later, "in flux");
            }
        }
        for taken in self.space.end(&change).unwrap().taken {
            if fails {
                self.space.put_back(taken);
            } else {
                store.release(&taken.pages);
                self.drop_slots(&taken.pages);
            }
        }
    }

    fn remap(&mut self, op: &Op, store: &mut Stored) {
        let Op::Move { from, to, len, fails, keep, between } = op else { unreachable!() };
        let target = *to..to + len;
        // The kernel refuses a range that is not one mapping.
        if self.mapped.around(from.start).is_none_or(|whole| whole.end < from.end) {
            return;
        }
        let change = Change::Remap {
            from: bytes_of(from),
            len: len * PAGE,
            fixed: Some(to * PAGE),
            keep: *keep,
        };
        self.begin(&change, &[from.clone(), target.clone()], store);
        let both = from.start.min(*to)..from.end.max(target.end);
        self.others(&both, between, store);
        let mut taken = self.space.end(&change).unwrap().taken;
        let (over, moved) = (taken.pop().unwrap(), taken.pop().unwrap());
        if *fails {
            self.space.put_back(over);
            self.space.put_back(moved);
            return;
        }
        store.release(&over.pages);
        self.drop_slots(&over.pages);
        self.drop_from_kernel(&target);
        self.registered.retain(|page| !target.contains(page) && (*keep || !from.contains(page)));
        for page in from.clone() {
            let (value, truth) = (self.kernel.remove(&page), self.truth.remove(&page));
            let there = page - from.start + to;
            if target.contains(&there) {
                value.map(|value| self.kernel.insert(there, value));
                truth.map(|value| self.truth.insert(there, value));
            }
        }
        if !keep {
            self.mapped.remove(from);
        }
        self.mapped.insert(target.clone());
        let old_closed = moved.closed.clone();
        let (closed, left) = self.space.carry(moved, *to, *len);
        store.release(&left);
        self.drop_slots(&left);
        self.registered.extend(closed.iter().cloned().flatten());
        if *keep {
            old_closed.iter().for_each(|part| self.space.close(part, &[], 1));
        }
        for page in target {
            if let Page::Chance(slot) = self.space.page(page) {
                self.chances.get_mut(&slot).unwrap().0 = page;
            }
        }
    }

    fn fork(&mut self, before: &[Small], after: &[Small], fails: bool, store: &mut Stored) {
        self.settle(2, store);
        self.retire(usize::MAX, store);
        let pages = &mut store.pages;
        let waited = self.space.begin_fork(|key| pages.get_mut(&key).unwrap().1 += 1);
        assert!(waited.is_empty());
        before.iter().for_each(|small| self.small(small, store));
        assert!(self.leaving.is_empty(), "S5");
        let mut child = Self {
            truth: self.truth.clone(),
            mapped: self.mapped.clone(),
            kernel: self.kernel.clone(),
            ..Self::default()
        };
        after.iter().for_each(|small| self.small(small, store));
        let (snapshot, arrivals) = self.space.end_fork().unwrap();
        let present = |page| child.kernel.contains_key(&page);
        let (space, released) = Space::child(snapshot, &arrivals, &child.mapped, present);
        store.release(&released);
        child.space = space;
        child.registered.extend(child.space.closed().iter().flatten());
        child.check();
        if !fails {
            child.verify(store);
            child.small(&Small::Pick(usize::MAX), store);
            child.settle(3, store);
            child.retire(usize::MAX, store);
            child.verify(store);
        }
        store.release(&child.space.forget_all());
    }

    /// What is there is known to be there, else it would never leave.
    fn check(&self) {
        self.space.check();
        for page in self.kernel.keys().filter(|page| self.registered.contains(page)) {
            assert!(self.space.page(*page).is_present(), "page {page} is not charged");
        }
    }

    fn verify(&mut self, store: &mut Stored) {
        for page in self.mapped.iter().flatten().collect::<Vec<_>>() {
            self.small(&Small::Read(page), store);
        }
    }

    fn apply(&mut self, op: &Op, store: &mut Stored) {
        match op {
            Op::Small(small) => self.small(small, store),
            Op::Map(range, open) => self.map(range, *open),
            Op::Unmap(range, fails, between) => self.unmap(range, *fails, between, store),
            Op::Discard(range, fails, between) => self.discard(range, *fails, between, store),
            Op::Move { .. } => self.remap(op, store),
            Op::Fork(before, after, fails) => self.fork(before, after, *fails, store),
        }
    }
}

proptest! {
    /// A program always finds what it wrote, and every key is named by what is known.
    #[test]
    fn a_program_finds_what_it_wrote(ops in prop::collection::vec(op(), 1..80)) {
        let (mut world, mut store) = (World::default(), Stored::default());
        world.map(&(0..AREA / 2), false);
        world.map(&(AREA..AREA + AREA / 2), true);
        for op in &ops {
            world.apply(op, &mut store);
            world.check();
            let named = world.space.counts().stored;
            prop_assert_eq!(store.pages.values().map(|(_, users)| users).sum::<usize>(), named);
            prop_assert_eq!(world.chances.len(), world.space.counts().chance);
        }
        world.settle(0, &mut store);
        world.verify(&mut store);
        store.release(&world.space.forget_all());
        prop_assert!(store.pages.is_empty(), "a key was lost");
    }
}

/// A racing thread gets the addresses of an unmap whose end is told later.
#[test]
fn a_new_mapping_at_the_addresses_of_an_unmap_keeps_its_pages() {
    let mut space = Space::default();
    let all = 0..100;
    space.close(&all, std::slice::from_ref(&all), 0);
    let unmap = Change::Unmap { range: bytes_of(&(0..100)) };
    space.begin(&unmap, std::slice::from_ref(&all));
    assert_eq!(space.fault(5, 9), Answer::Later, "the old one is in flux");
    space.close(&(0..50), &[], 1);
    assert_eq!(space.fault(5, 9), Answer::Zero(5..6));
    space.arrived(5, Space::NEW);
    let flux = space.end(&unmap).unwrap();
    assert_eq!(flux.taken[0].pages.len(), 100);
    assert_eq!(space.page(5), Space::NEW);
    assert_eq!(space.fault(60, 9), Answer::Unknown);
    space.check();
}

#[test]
fn while_a_fork_waits_no_page_arrives() {
    let mut space = Space::default();
    space.close(&(0..10), &[], 0);
    space.shut();
    assert_eq!(space.fault(3, 9), Answer::Later);
    assert_eq!(space.begin_fork(|_| ()), [3], "to be woken");
    assert_eq!(space.fault(3, 9), Answer::Zero(3..4));
    space.arrived(3, Space::NEW);
    let (snapshot, arrivals) = space.end_fork().unwrap();
    assert!(arrivals.contains(&3));
    let mut mapped = Ranges::default();
    mapped.insert(0..10);
    let (child, released) = Space::child(snapshot, &arrivals, &mapped, |_| false);
    assert_eq!((child.page(3), released.len()), (Page::Absent, 0), "copied before it arrived");
}
