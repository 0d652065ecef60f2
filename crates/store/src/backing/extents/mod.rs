//! Which units of a backing are in use: one bit for each, and a tree that finds free runs.
//!
//! The bitmap is cut into blocks of [`BLOCK`] units. For each block a node of the tree's lowest
//! level says how long its longest free run is, and how long those at its two edges are; a node of
//! the next level says the same of two neighbours together, and so on up to one node for all. A
//! search for a run goes into a node only if the run lies within it, so it reads one bitmap block
//! or two and as many nodes as the tree is high, whatever the size and however fragmented.
//!
//! The search is next-fit: it begins where the last one ended. So consecutive allocations lie side
//! by side, which makes writing sequential.
//!
//! # Invariants
//!
//! - X1: a bit is set if its unit is in use or lies beyond the last unit.
//! - X2: every node describes the bits below it.
//! - X3: `used` is the number of units in use.
//!
//! # Cost
//!
//! Memory: a bit a unit and 24 bytes a block, or 5 % more; a backing of 2 TiB takes 536 MiB, of
//! which the bitmap becomes resident as it is touched. Time: a scan of each bitmap block that
//! changes, of 512 bytes, and a step up the tree for each doubling of the size.

/// Bytes of a unit.
pub(crate) const UNIT: usize = 512;

/// Units of a block.
const BLOCK: usize = 4096;

const WORD: usize = u64::BITS as usize;
const WORDS_PER_BLOCK: usize = BLOCK / WORD;

/// An allocator of runs of units: one bit for each, and a tree that finds free runs. An allocation
/// begins where the last one ended, if it can.
#[derive(Debug)]
pub struct Extents {
    units: usize,
    used: usize,
    /// Where the next search begins; at most `units`.
    cursor: usize,
    words: Vec<u64>,
    /// From blocks to a level of one node; each level has half the nodes of the one below,
    /// rounded up.
    levels: Vec<Vec<Node>>,
}

/// The lengths in units of free runs below a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Node {
    /// Of the run at the beginning.
    prefix: u32,
    /// Of the run at the end.
    suffix: u32,
    longest: u32,
}

impl Node {
    /// Returns the node of two neighbours that cover `half` units each.
    fn join(left: Self, right: Self, half: u32) -> Self {
        Self {
            prefix: if left.prefix == half { half + right.prefix } else { left.prefix },
            suffix: if right.suffix == half { half + left.suffix } else { right.suffix },
            longest: left.longest.max(right.longest).max(left.suffix + right.prefix),
        }
    }
}

/// A free run that ends where a search has come to.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    first: usize,
    len: usize,
}

impl Extents {
    /// Returns an allocator of `units` free units.
    #[must_use]
    pub fn new(units: u32) -> Self {
        let units = units as usize;
        let blocks = units.div_ceil(BLOCK);
        let (words, levels) = (vec![0; blocks * WORDS_PER_BLOCK], Vec::new());
        let mut extents = Self { units, used: 0, cursor: 0, words, levels };
        for_each_mask(units, blocks * BLOCK - units, |word, mask| extents.words[word] |= mask);
        let mut nodes = blocks;
        extents.levels.push(vec![Node::default(); nodes]);
        while nodes > 1 {
            nodes = nodes.div_ceil(2);
            extents.levels.push(vec![Node::default(); nodes]);
        }
        extents.refresh(0, blocks);
        extents
    }

    /// Takes `units` neighbouring units and returns the first, or `None` if there is no such run
    /// or `units` is 0.
    fn allocate(&mut self, units: u32) -> Option<u32> {
        if units == 0 || units > self.longest() {
            return None;
        }
        let need = units as usize;
        let first = self.find(self.cursor, need).or_else(|| self.find(0, need))?;
        self.mark(first, need, true);
        self.used += need;
        self.cursor = first + need;
        Some(first as u32)
    }

    /// Takes a run of `units`, or the longest there is if all are shorter, and returns its first
    /// unit and its length; `None` if nothing is free or `units` is 0.
    pub fn allocate_up_to(&mut self, units: u32) -> Option<(u32, u32)> {
        let len = units.min(self.longest());
        self.allocate(len).map(|first| (first, len))
    }

    /// Gives back `len` units from `first` on, which need not be a run as it was allocated.
    ///
    /// # Panics
    ///
    /// If the range ends beyond the last unit; in debug builds also if one of its units is free,
    /// which otherwise stays so.
    pub fn free(&mut self, first: u32, len: u32) {
        let (first, len) = (first as usize, len as usize);
        assert!(first + len <= self.units, "units {first}+{len} are beyond {}", self.units);
        let freed = self.used_within(first, len);
        debug_assert_eq!(freed, len, "units {first}+{len} are freed and were not all in use");
        self.mark(first, len, false);
        self.used -= freed;
    }

    /// Returns the number of units in use.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.used as u32
    }

    /// Returns the bytes of memory that the bitmap and the tree take.
    pub(crate) fn bytes(&self) -> usize {
        let nodes: usize = self.levels.iter().map(Vec::capacity).sum();
        self.words.capacity() * size_of::<u64>() + nodes * size_of::<Node>()
    }

    /// Returns the length of the longest free run.
    fn longest(&self) -> u32 {
        self.levels.last().and_then(|top| top.first()).map_or(0, |root| root.longest)
    }

    /// Returns the first free run of `need` units that begins at `from` or later, and in a run
    /// that began before, at `from`.
    fn find(&self, from: usize, need: usize) -> Option<usize> {
        self.search(self.levels.len() - 1, 0, from, need, &mut Run::default())
    }

    /// Searches below one node. `before` is the free run that ends where the node begins, and
    /// afterwards, without a result, the one that ends where the node does.
    fn search(
        &self,
        level: usize,
        index: usize,
        from: usize,
        need: usize,
        before: &mut Run,
    ) -> Option<usize> {
        let node = *self.levels[level].get(index)?;
        let size = BLOCK << level;
        let first = index * size;
        if first + size <= from {
            return None;
        }
        if first >= from {
            if before.len == 0 {
                before.first = first;
            }
            if before.len + node.prefix as usize >= need {
                return Some(before.first);
            }
            if (node.longest as usize) < need {
                if node.prefix as usize == size {
                    before.len += size;
                } else {
                    let len = node.suffix as usize;
                    *before = Run { first: first + size - len, len };
                }
                return None;
            }
        }
        if level == 0 {
            return self.search_block(first.max(from), first + BLOCK, need, before);
        }
        self.search(level - 1, 2 * index, from, need, before)
            .or_else(|| self.search(level - 1, 2 * index + 1, from, need, before))
    }

    /// Searches the bits from `from` to `end`.
    fn search_block(&self, from: usize, end: usize, need: usize, run: &mut Run) -> Option<usize> {
        let mut at = from;
        while at < end {
            let free = self.stretch(at, end, true);
            if run.len == 0 {
                run.first = at;
            }
            run.len += free;
            if run.len >= need {
                return Some(run.first);
            }
            at += free;
            if at < end {
                run.len = 0;
                at += self.stretch(at, end, false);
            }
        }
        None
    }

    /// Returns how many bits from `at` on, but not beyond `end`, are free, or are not.
    fn stretch(&self, at: usize, end: usize, free: bool) -> usize {
        let mut next = at;
        while next < end {
            let word = self.words[next / WORD];
            let differing = if free { word } else { !word } >> (next % WORD);
            if differing != 0 {
                next += differing.trailing_zeros() as usize;
                break;
            }
            next = (next / WORD + 1) * WORD;
        }
        next.min(end) - at
    }

    /// Sets the bits of a range to `used`, and updates the tree.
    fn mark(&mut self, first: usize, len: usize, used: bool) {
        if len == 0 {
            return;
        }
        for_each_mask(first, len, |word, mask| {
            if used {
                debug_assert_eq!(self.words[word] & mask, 0, "a unit is allocated twice");
                self.words[word] |= mask;
            } else {
                self.words[word] &= !mask;
            }
        });
        self.refresh(first / BLOCK, (first + len).div_ceil(BLOCK));
    }

    /// Returns how many units of a range are in use.
    fn used_within(&self, first: usize, len: usize) -> usize {
        let mut used = 0;
        for_each_mask(first, len, |word, mask| {
            used += (self.words[word] & mask).count_ones() as usize;
        });
        used
    }

    /// Makes the nodes of the blocks from `first` to before `end`, and all above, describe what
    /// is below them (X2).
    fn refresh(&mut self, first: usize, end: usize) {
        let (mut first, mut end) = (first, end);
        for level in 0..self.levels.len() {
            self.refresh_level(level, first, end);
            (first, end) = (first / 2, end.div_ceil(2));
        }
    }

    fn refresh_level(&mut self, level: usize, first: usize, end: usize) {
        for index in first..end {
            self.levels[level][index] = match level {
                0 => self.block_node(index),
                _ => {
                    let below = &self.levels[level - 1];
                    // The last node of a level may have one below it only.
                    let right = below.get(2 * index + 1).copied().unwrap_or_default();
                    Node::join(below[2 * index], right, (BLOCK as u32) << (level - 1))
                }
            };
        }
    }

    /// Returns the node of one block, from its bits.
    fn block_node(&self, block: usize) -> Node {
        let (first, end) = (block * BLOCK, (block + 1) * BLOCK);
        let mut node = Node { prefix: self.stretch(first, end, true) as u32, ..Node::default() };
        let mut at = first;
        while at < end {
            let free = self.stretch(at, end, true);
            node.longest = node.longest.max(free as u32);
            at += free;
            if at == end {
                node.suffix = free as u32;
            }
            at += self.stretch(at, end, false);
        }
        node
    }
}

/// Calls `visit` with each word that a range of bits touches and the mask of its bits there.
fn for_each_mask(first: usize, len: usize, mut visit: impl FnMut(usize, u64)) {
    let (mut at, end) = (first, first + len);
    while at < end {
        let stop = ((at / WORD + 1) * WORD).min(end);
        visit(at / WORD, (u64::MAX >> (WORD - (stop - at))) << (at % WORD));
        at = stop;
    }
}

#[cfg(test)]
mod tests;
