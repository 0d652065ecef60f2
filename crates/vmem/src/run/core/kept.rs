//! Pages that never leave.

use std::collections::BTreeMap;

use super::ranges::PageNo;

/// Pages that never leave, each as often as it was asked for: the kernel writes to them where it
/// cannot wait for a page.
#[derive(Debug, Default)]
pub(crate) struct Kept(BTreeMap<PageNo, usize>);

impl Kept {
    /// One more reason to keep a page.
    pub(crate) fn add(&mut self, page: PageNo) {
        *self.0.entry(page).or_insert(0) += 1;
    }

    /// One less.
    pub(crate) fn remove(&mut self, page: PageNo) {
        if let Some(count) = self.0.get_mut(&page) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&page);
            }
        }
    }

    /// Returns whether a page is kept.
    pub(crate) fn has(&self, page: PageNo) -> bool {
        self.0.contains_key(&page)
    }
}
