//! Asserts F1, F2, F3 and F5.

use std::collections::HashSet;

use crate::buddy::z3fold::layout::{Buddy, LISTED, RECLAIM, WAITING};
use crate::buddy::z3fold::{WAITING_MAX, Z3fold};

impl Z3fold {
    pub(super) fn check_invariants(&self) {
        self.arena.check();
        self.objects.check();
        let limit = self.arena.frames_fresh() as usize;
        let (mut pages, mut roomy) = (HashSet::new(), HashSet::new());
        for index in self.objects.records().indices() {
            let object = self.objects.records().at(index).get();
            assert!(pages.insert(object.page) || object.place != Buddy::Headless, "F1: shared");
            if object.place != Buddy::Headless {
                assert_eq!(
                    self.layout.record(object.page, object.place),
                    Some(index),
                    "F1: {object:?}"
                );
                self.layout.check_overlap(object.page);
                if !self.layout.is_in(RECLAIM, object.page) {
                    roomy.insert(object.page);
                }
            }
        }
        if self.headless_reclaim.is_empty() {
            assert!(pages.len() as u64 <= self.arena.used().0, "F1: more pages than used");
        }
        let waiting = self.waiting.walk(&self.layout.headers, limit);
        for &page in &waiting {
            assert!(
                self.layout.is_in(WAITING, page) && self.layout.has_room(page),
                "F2: page {page} waits"
            );
        }
        assert_eq!(waiting.len(), self.waiting_pages, "F2: pages that wait");
        assert!(self.waiting_pages <= WAITING_MAX, "F2: too many pages wait");
        let listed = self.unbuddied.walk(self.layout.headers, limit);
        for &(page, free) in &listed {
            assert!(
                self.layout.is_in(LISTED, page) && self.layout.has_room(page),
                "F2: page {page} is listed"
            );
            assert_eq!(self.layout.free_chunks(page), free, "F2: page {page} is on the wrong list");
        }
        let roomy = roomy.into_iter().filter(|&page| self.layout.has_room(page));
        assert_eq!(roomy.count(), listed.len() + waiting.len(), "F2: a page with room is lost");
        if let Some(aged) = self.age.walk() {
            assert!(aged.len() as u64 <= self.arena.used().0, "F5: more pages aged than used");
            assert!(aged.iter().all(|page| pages.contains(page)), "F5: empty page in age order");
        }
    }
}
