//! Pages that never leave.

use std::collections::{BTreeMap, BTreeSet};

use super::ranges::{PageNo, Pages};

/// Threads to have before the first search for those that are gone.
const LOOK_MIN: usize = 32;

/// Pages that never leave, some of them while the threads that need them exist: the kernel accesses
/// them where it cannot wait for a page.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    always: Vec<Pages>,
    /// Where the child of a fork in progress finds its number.
    number: Option<PageNo>,
    threads: BTreeMap<i32, BTreeSet<PageNo>>,
    /// How many threads need a page.
    pages: BTreeMap<PageNo, usize>,
    /// Threads that existed at the last search.
    seen: usize,
}

impl Kept {
    /// These pages never leave, and the earlier ones may.
    pub(crate) fn set_always(&mut self, pages: Vec<Pages>) {
        self.always = pages;
    }

    /// A fork begins whose child needs this page, or it is over. There is one at a time.
    pub(crate) fn set_number(&mut self, page: Option<PageNo>) {
        self.number = page;
    }

    /// A thread needs a page.
    pub(crate) fn add(&mut self, thread: i32, page: PageNo) {
        if self.threads.entry(thread).or_default().insert(page) {
            *self.pages.entry(page).or_insert(0) += 1;
        }
    }

    /// A thread is gone: another one has its number, or for another reason.
    pub(crate) fn remove(&mut self, thread: i32) {
        for page in self.threads.remove(&thread).into_iter().flatten() {
            if let Some(count) = self.pages.get_mut(&page) {
                *count -= 1;
                if *count == 0 {
                    self.pages.remove(&page);
                }
            }
        }
    }

    /// Removes the threads that are gone.
    pub(crate) fn look(&mut self, is_there: impl Fn(i32) -> bool) {
        let gone: Vec<_> = self.threads.keys().copied().filter(|&at| !is_there(at)).collect();
        gone.into_iter().for_each(|thread| self.remove(thread));
        self.seen = self.threads.len();
    }

    /// Returns whether there are enough threads for another search: on average, each is searched
    /// for once or twice.
    pub(crate) fn is_look_due(&self) -> bool {
        self.threads.len() >= LOOK_MIN.max(2 * self.seen)
    }

    /// Returns whether a page is kept.
    pub(crate) fn has(&self, page: PageNo) -> bool {
        self.always.iter().any(|pages| pages.contains(&page))
            || self.number == Some(page)
            || self.pages.contains_key(&page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_kept_until_the_last_thread_that_needs_them_is_gone() {
        let mut kept = Kept::default();
        for (thread, page) in [(1, 7), (1, 7), (1, 8), (2, 7)] {
            kept.add(thread, page);
        }
        kept.look(|thread| thread != 1);
        assert!(kept.has(7) && !kept.has(8));
        kept.remove(2);
        kept.remove(3);
        assert!(!kept.has(7) && kept.pages.is_empty() && kept.threads.is_empty());
        kept.set_always(vec![3..4, 7..9]);
        kept.look(|_| false);
        assert!(kept.has(8) && !kept.has(9));
        kept.set_number(Some(9));
        assert!(kept.has(9));
        kept.set_number(None);
        assert!(!kept.has(9));
    }

    #[test]
    fn threads_are_looked_for_when_there_are_twice_as_many() {
        let mut kept = Kept::default();
        let mut looks = 0;
        for thread in 0..10_000 {
            kept.add(thread, 1);
            if kept.is_look_due() {
                kept.look(|_| true);
                looks += 1;
            }
        }
        assert!(looks < 10, "{looks} looks");
        kept.look(|_| false);
        assert!(!kept.has(1) && !kept.is_look_due());
    }
}
