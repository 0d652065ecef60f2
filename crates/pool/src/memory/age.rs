//! The order in which pages (or zspages) were last used, for reclaim.
//!
//! The links lie in a table of their own, 12 bytes a page, that exists only where reclaim is
//! enabled: no other pool pays for it, and pages without a header can be in it.

use crate::memory::list::{Links, List, NIL};

/// See the module documentation. Does nothing unless it is enabled.
#[derive(Debug)]
pub(crate) struct AgeOrder {
    enabled: bool,
    order: List,
    links: NodeLinks,
}

#[derive(Debug, Default)]
struct NodeLinks(Vec<Node>);

#[derive(Clone, Copy, Debug)]
struct Node {
    prev: u32,
    next: u32,
    note: u32,
}

impl Links for NodeLinks {
    fn links(&self, node: u32) -> (u32, u32) {
        let node = &self.0[node as usize];
        (node.prev, node.next)
    }
    fn set_prev(&mut self, node: u32, prev: u32) {
        self.0[node as usize].prev = prev;
    }
    fn set_next(&mut self, node: u32, next: u32) {
        self.0[node as usize].next = next;
    }
}

impl AgeOrder {
    pub(crate) fn new(enabled: bool) -> Self {
        Self { enabled, order: List::EMPTY, links: NodeLinks::default() }
    }

    /// Adds an unlisted page as the youngest, with a note for [`AgeOrder::oldest`].
    #[inline]
    pub(crate) fn add(&mut self, page: u32, note: u32) {
        if !self.enabled {
            return;
        }
        if self.links.0.len() <= page as usize {
            self.links.0.resize(page as usize + 1, Node { prev: NIL, next: NIL, note: NIL });
        }
        self.links.0[page as usize].note = note;
        self.order.push_front(&mut self.links, page);
    }

    /// Takes a listed page out.
    #[inline]
    pub(crate) fn remove(&mut self, page: u32) {
        if self.enabled {
            self.order.remove(&mut self.links, page);
        }
    }

    /// Makes a listed page the youngest.
    #[inline]
    pub(crate) fn touch(&mut self, page: u32) {
        if self.enabled && self.order.first() != Some(page) {
            self.order.remove(&mut self.links, page);
            self.order.push_front(&mut self.links, page);
        }
    }

    /// Returns the page that was used longest ago, and its note.
    pub(crate) fn oldest(&self) -> Option<(u32, u32)> {
        self.order.last().map(|page| (page, self.links.0[page as usize].note))
    }

    /// Bytes of the table.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        (self.links.0.capacity() * size_of::<Node>()) as u64
    }

    /// Returns all listed pages, youngest first; `None` if the order is not enabled.
    ///
    /// # Panics
    /// If the links disagree.
    pub(crate) fn walk(&self) -> Option<Vec<u32>> {
        self.enabled.then(|| self.order.walk(&self.links, self.links.0.len()))
    }
}
