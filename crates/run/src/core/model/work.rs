//! What threads do with pages between two times that they have the lock.

use super::super::loads::Loads;
use super::super::pages::{Page, SlotNo};
use super::super::ranges::PageNo;
use super::super::space::Answer;
use super::{Mapped, PAGES, World};

impl World {
    /// A thread looks at a page of the swap cache, without the lock.
    pub(super) fn begin(&mut self, nth: usize) {
        let is_free = |slot: &SlotNo| self.works.iter().all(|(other, ..)| other != slot);
        let live = self.cache.iter().filter(|&(&slot, &(_, page))| self.space.holds(page, slot));
        let mut live = live.filter(|(slot, _)| is_free(slot));
        let Some((&slot, &(content, page))) = live.nth(nth) else { return };
        let copy = self.space.copy(page);
        let believed = self.breaks_compare || (self.breaks_marks && self.marked.contains(&slot));
        let same = copy.is_some_and(|key| believed || self.store[&key] == content);
        self.works.push((slot, copy, same));
    }

    /// It takes the lock and says where the page is now; if nothing is said, it begins anew.
    pub(super) fn store(&mut self, nth: usize) {
        if nth >= self.works.len() {
            return;
        }
        let (slot, copy, same) = self.works.remove(nth);
        let (content, page) = self.cache[&slot];
        if let Some(key) = copy.filter(|_| same) {
            if self.breaks_kept {
                self.space.stored(page, slot, key);
                // Its own copy is the page.
                self.space.take_free();
            } else {
                self.space.kept(page, slot, key);
            }
            return;
        }
        let key = self.put(content);
        if !self.space.stored(page, slot, key) {
            self.space.give_up(key);
        }
        self.release();
    }

    /// A thread reads the pages that a fault is to get, without the lock.
    pub(super) fn load(&mut self, page: PageNo) {
        let is_missing = |mapped: &Mapped| mapped.registered && mapped.content.is_none();
        if self.refuses()
            || !self.kernel.get(&page).is_some_and(is_missing)
            || !matches!(self.space.page(page), Page::Stored(_))
        {
            return;
        }
        let Answer::Stored(loads) = self.space.fault(page, 4) else { unreachable!("it is stored") };
        self.begin_load(page, loads);
    }

    /// It takes the lock and fills in what it has read; what is refused is asked for anew.
    pub(super) fn loaded(&mut self, nth: usize) {
        if nth >= self.loads.len() {
            return;
        }
        let (page, loads, number, contents) = self.loads.remove(nth);
        if !self.breaks_load {
            self.space.end_load(number);
        }
        let runs: Vec<_> = self.space.still(&loads).collect();
        let refuses = self.refuses();
        for at in runs.into_iter().flatten().filter(|_| !refuses) {
            let at_page = loads[at].0;
            self.bring(at_page, contents[at]);
            let one = at_page..at_page + 1;
            if at_page == page {
                self.space.filled(page, &one, true);
            } else {
                self.space.brought(&one, true);
            }
        }
        self.release();
    }

    /// A page that is there and registered is marked.
    pub(super) fn mark(&mut self, page: PageNo) {
        if let Some(mapped) = self.kernel.get_mut(&page) {
            mapped.marked = mapped.registered && mapped.content.is_some();
        }
    }

    /// What is in a page that is there becomes something else.
    pub(super) fn change(&mut self, page: PageNo) {
        if let Some(mapped) = self.kernel.get_mut(&page)
            && mapped.content.is_some()
            && !mapped.given_up
        {
            self.next += 1;
            mapped.content = Some(self.next);
            mapped.expected = self.next;
        }
    }

    /// A page that is missing gets its content.
    fn bring(&mut self, page: PageNo, content: u32) {
        let mapped = self.kernel.get_mut(&page).expect("the table is what the kernel has");
        assert!(mapped.content.is_none(), "space/S1");
        (mapped.content, mapped.marked) = (Some(content), false);
    }

    fn begin_load(&mut self, page: PageNo, loads: Loads) {
        let number = if self.breaks_load { 0 } else { self.space.begin_load() };
        let contents = loads.iter().map(|(_, key)| self.store[key]).collect();
        self.loads.push((page, loads, number, contents));
    }

    pub(super) fn drop_copies(&mut self, most: usize) {
        self.space.take_copies(&(0..PAGES), most);
        self.release();
    }
}
