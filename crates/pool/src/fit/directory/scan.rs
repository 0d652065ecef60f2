//! Entries, and searches over an array of them: without a branch on what is in it, and over all of
//! it, whatever is used. So compilers make vectors of the loops, and how many steps they take
//! changes with the array's capacity only.

/// The bit of a free extent's entry.
pub(super) const FREE: u16 = 1 << 15;

/// Returns where the extent of an entry begins.
#[inline]
pub(super) fn start(entry: u16) -> u16 {
    entry & !FREE
}

/// Returns whether the extent of an entry is free.
#[inline]
pub(super) fn is_free(entry: u16) -> bool {
    entry & FREE != 0
}

/// All capacities are multiples of it: compilers then leave out what ends a loop over vectors.
pub(super) const STEP: usize = 16;

/// Lengths of holes: `least` granules, and up to `more` beyond that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lens {
    pub(crate) least: u16,
    pub(crate) more: u16,
}

/// Returns how many holes have one of `lens`, and where the last of them begins. `entries` is an
/// array (E4) and any entry after it.
#[inline]
pub(super) fn holes(entries: &[u16], lens: Lens) -> (u16, u16) {
    let len = entries.len() / STEP * STEP;
    let (mut count, mut last) = (0, 0);
    for (&entry, &next) in entries[..len].iter().zip(&entries[1..]) {
        // What follows a hole is used or the end (E1, E4), so its flag is not set.
        let granules = next.wrapping_sub(entry) ^ FREE;
        let hit = is_free(entry) & (granules.wrapping_sub(lens.least) <= lens.more);
        last = last.max(if hit { entry } else { 0 });
        count += u16::from(hit);
    }
    (count, start(last))
}

/// Returns how many entries of an array (E4) begin before the granule `at`, which is before the
/// directory's end.
#[inline]
pub(super) fn before(entries: &[u16], at: u16) -> usize {
    let len = entries.len() / STEP * STEP;
    entries[..len].iter().map(|&entry| u16::from(start(entry) < at)).sum::<u16>().into()
}
