//! Doubly linked lists through the nodes of a table; nodes are named by index.
//!
//! A list owns nothing: it says where it begins and ends, the links live in the nodes, and a
//! [`Links`] says how to reach them. Every operation is O(1).

/// The index that means "no node".
pub(crate) const NIL: u32 = u32::MAX;

/// Access to one pair of links of every node.
pub(crate) trait Links {
    /// Returns the neighbours of `node`: before and after it.
    fn links(&self, node: u32) -> (u32, u32);
    /// Sets the neighbour before `node`.
    fn set_prev(&mut self, node: u32, prev: u32);
    /// Sets the neighbour after `node`.
    fn set_next(&mut self, node: u32, next: u32);
}

/// A list's two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct List {
    head: u32,
    tail: u32,
}

impl List {
    pub(crate) const EMPTY: Self = Self { head: NIL, tail: NIL };

    /// Returns the first node.
    #[inline]
    pub(crate) fn first(&self) -> Option<u32> {
        (self.head != NIL).then_some(self.head)
    }

    /// Returns the last node.
    #[inline]
    pub(crate) fn last(&self) -> Option<u32> {
        (self.tail != NIL).then_some(self.tail)
    }

    /// Puts `node`, which is in no list, first.
    #[inline]
    pub(crate) fn push_front(&mut self, links: &mut impl Links, node: u32) {
        let next = std::mem::replace(&mut self.head, node);
        links.set_prev(node, NIL);
        links.set_next(node, next);
        match next {
            NIL => self.tail = node,
            next => links.set_prev(next, node),
        }
    }

    /// Puts `node`, which is in no list, right after `place`, which is in this one.
    pub(crate) fn insert_after(&mut self, links: &mut impl Links, place: u32, node: u32) {
        let (_, next) = links.links(place);
        links.set_prev(node, place);
        links.set_next(node, next);
        links.set_next(place, node);
        match next {
            NIL => self.tail = node,
            next => links.set_prev(next, node),
        }
    }

    /// Takes `node`, which is in this list, out.
    #[inline]
    pub(crate) fn remove(&mut self, links: &mut impl Links, node: u32) {
        let (prev, next) = links.links(node);
        match prev {
            NIL => self.head = next,
            prev => links.set_next(prev, next),
        }
        match next {
            NIL => self.tail = prev,
            next => links.set_prev(next, prev),
        }
    }

    /// Walks the list from its first node and asserts that links agree in both directions.
    ///
    /// # Panics
    /// If they do not, or if the walk is longer than `limit` nodes.
    pub(crate) fn walk(&self, links: &impl Links, limit: usize) -> Vec<u32> {
        let (mut nodes, mut before, mut at) = (Vec::new(), NIL, self.head);
        while at != NIL {
            let (prev, next) = links.links(at);
            assert_eq!(prev, before, "list links disagree at node {at}");
            assert!(nodes.len() < limit, "list has a cycle");
            nodes.push(at);
            (before, at) = (at, next);
        }
        assert_eq!(before, self.tail, "list tail is wrong");
        nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Nodes([(u32, u32); 8]);

    impl Links for Nodes {
        fn links(&self, node: u32) -> (u32, u32) {
            self.0[node as usize]
        }
        fn set_prev(&mut self, node: u32, prev: u32) {
            self.0[node as usize].0 = prev;
        }
        fn set_next(&mut self, node: u32, next: u32) {
            self.0[node as usize].1 = next;
        }
    }

    #[test]
    fn nodes_come_out_in_the_order_that_was_asked_for() {
        let (mut nodes, mut list) = (Nodes::default(), List::EMPTY);
        for node in [1, 2, 3] {
            list.push_front(&mut nodes, node);
        }
        list.insert_after(&mut nodes, 1, 4);
        list.insert_after(&mut nodes, 3, 5);
        assert_eq!(list.walk(&nodes, 8), [3, 5, 2, 1, 4]);
        assert_eq!((list.first(), list.last()), (Some(3), Some(4)));
    }

    #[test]
    fn removing_all_nodes_in_any_order_empties_the_list() {
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0]] {
            let (mut nodes, mut list) = (Nodes::default(), List::EMPTY);
            (0..3).for_each(|node| list.push_front(&mut nodes, node));
            for node in order {
                list.remove(&mut nodes, node);
                list.walk(&nodes, 8);
            }
            assert_eq!(list, List::EMPTY);
        }
    }
}
