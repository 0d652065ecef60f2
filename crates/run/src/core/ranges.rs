//! Disjoint ranges of page numbers.

use std::collections::BTreeMap;
use std::ops::Range;

use zfold_uffd::page::page_len;

/// Number of a page: its address divided by the page size.
pub(crate) type PageNo = usize;
/// A range of pages.
pub(crate) type Pages = Range<PageNo>;

/// Returns the page that an address lies in.
pub(crate) fn page_of(address: usize) -> PageNo {
    address / page_len()
}

/// Returns the pages of a range of bytes, which are whole pages.
pub(crate) fn pages_of(bytes: &Range<usize>) -> Pages {
    debug_assert!(bytes.start.is_multiple_of(page_len()) && bytes.end.is_multiple_of(page_len()));
    bytes.start / page_len()..bytes.end / page_len()
}

/// Returns the bytes of a range of pages.
pub(crate) fn bytes_of(pages: &Pages) -> Range<usize> {
    pages.start * page_len()..pages.end * page_len()
}

/// Returns the intersection of two ranges; may be empty.
pub(crate) fn common(a: &Pages, b: &Pages) -> Pages {
    let start = a.start.max(b.start);
    start..a.end.min(b.end).max(start)
}

/// Returns `page` and its neighbours in `within` that belong to it, without a gap.
pub(crate) fn run_around(page: PageNo, within: &Pages, belongs: impl Fn(PageNo) -> bool) -> Pages {
    let below = (within.start..page).rev().find(|&at| !belongs(at));
    let end = (page + 1..within.end).find(|&at| !belongs(at));
    below.map_or(within.start, |at| at + 1)..end.unwrap_or(within.end)
}

/// A set of pages as ranges, neighbours joined: start to end.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Ranges(BTreeMap<PageNo, PageNo>);

impl FromIterator<Pages> for Ranges {
    fn from_iter<T: IntoIterator<Item = Pages>>(parts: T) -> Self {
        let mut ranges = Self::default();
        parts.into_iter().for_each(|part| ranges.insert(part));
        ranges
    }
}

impl Ranges {
    /// Returns the range that holds `page`.
    pub(crate) fn around(&self, page: PageNo) -> Option<Pages> {
        let (&start, &end) = self.0.range(..=page).next_back()?;
        (page < end).then_some(start..end)
    }

    /// Returns whether any page of `of` is in the set.
    pub(crate) fn touches(&self, of: &Pages) -> bool {
        !of.is_empty() && self.0.range(..of.end).next_back().is_some_and(|(_, &end)| end > of.start)
    }

    /// Returns the parts of `of` that are in the set, in order.
    pub(crate) fn within(&self, of: &Pages) -> Vec<Pages> {
        let first = self.0.range(..of.start).next_back().map(|(&start, _)| start);
        let parts = self.0.range(first.unwrap_or(of.start)..of.end.max(of.start));
        let parts = parts.map(|(&start, &end)| common(&(start..end), of));
        parts.filter(|part| !part.is_empty()).collect()
    }

    /// Returns the parts of `of` that are not in the set, in order.
    pub(crate) fn without(&self, of: &Pages) -> Vec<Pages> {
        let mut gaps = Vec::new();
        let mut from = of.start;
        for part in self.within(of) {
            gaps.push(from..part.start);
            from = part.end;
        }
        gaps.push(from..of.end);
        gaps.retain(|gap| !gap.is_empty());
        gaps
    }

    /// Adds pages, some of which may be there.
    pub(crate) fn insert(&mut self, pages: Pages) {
        if pages.is_empty() {
            return;
        }
        let mut joined = pages;
        // From the end, so that at most one range before the start is examined.
        while let Some((&start, &end)) = self.0.range(..=joined.end).next_back() {
            if end < joined.start {
                break;
            }
            joined = joined.start.min(start)..joined.end.max(end);
            self.0.remove(&start);
        }
        self.0.insert(joined.start, joined.end);
    }

    /// Removes pages; returns the parts that were there.
    pub(crate) fn remove(&mut self, pages: &Pages) -> Vec<Pages> {
        let parts = self.within(pages);
        for part in &parts {
            let whole = self.around(part.start).expect("a part lies in a range");
            self.0.remove(&whole.start);
            if whole.start < part.start {
                self.0.insert(whole.start, part.start);
            }
            if part.end < whole.end {
                self.0.insert(part.end, whole.end);
            }
        }
        parts
    }

    /// Returns all ranges in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Pages> + '_ {
        self.0.iter().map(|(&start, &end)| start..end)
    }

    /// Returns whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The set is what a plain set of pages would be, joined.
        #[test]
        fn ranges_are_a_set(ops in prop::collection::vec((any::<bool>(), 0_usize..60, 0_usize..12),
                                                         1..60)) {
            let (mut ranges, mut model) = (Ranges::default(), BTreeSet::new());
            for (insert, start, len) in ops {
                let pages = start..start + len;
                if insert {
                    ranges.insert(pages.clone());
                    model.extend(pages.clone());
                } else {
                    let removed: Vec<_> = ranges.remove(&pages).into_iter().flatten().collect();
                    let expected: Vec<_> = pages.clone().filter(|p| model.remove(p)).collect();
                    prop_assert_eq!(removed, expected);
                }
                prop_assert_eq!(ranges.iter().flatten().collect::<BTreeSet<_>>(), model.clone());
                let joined: Vec<_> = ranges.iter().collect();
                prop_assert!(joined.windows(2).all(|two| two[0].end < two[1].start));
                let query = start / 2..start + 3;
                let inside: Vec<_> = ranges.within(&query).into_iter().flatten().collect();
                let outside: Vec<_> = ranges.without(&query).into_iter().flatten().collect();
                prop_assert_eq!(ranges.touches(&query), !inside.is_empty());
                let (yes, no): (Vec<_>, Vec<_>) = query.partition(|p| model.contains(p));
                prop_assert_eq!((inside, outside), (yes, no));
                prop_assert_eq!(ranges.around(start).is_some(), model.contains(&start));
            }
        }
    }
}
