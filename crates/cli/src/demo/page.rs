//! The data of the demo: pages of memory of real programs, each with its number and a checksum.

use zfold_compare::input::PageSet;
use zfold_compare::rng::SplitMix64;

/// Length of a page.
pub(super) const PAGE: usize = 4096;
/// Where a page has its checksum.
const SUM_AT: usize = PAGE - 8;
/// Pages of each program: few, as they take memory besides the data.
const OF_EACH: usize = 128;

/// Pages that are filled in over and over.
pub(super) struct Samples(Vec<[u8; PAGE]>);

impl Samples {
    /// Returns pages of the built-in captures.
    pub(super) fn new() -> Self {
        let page = |page: &[u8]| page.try_into().expect("pages of this length");
        let of = |program: PageSet| program.pages().take(OF_EACH).map(page).collect::<Vec<_>>();
        Self(PageSet::builtin(PAGE).flat_map(of).collect())
    }

    /// Fills the page of this number, and seals it.
    pub(super) fn fill(&self, page: &mut [u8], number: u64) {
        page.copy_from_slice(&self.0[number as usize % self.0.len()]);
        page[..8].copy_from_slice(&number.to_le_bytes());
        seal(page);
    }
}

/// Changes some fields of a page, as an update of rows does, and seals it again.
pub(super) fn update(page: &mut [u8], chance: &mut SplitMix64) {
    for _ in 0..4 {
        let at = chance.below((SUM_AT / 8) as u64) as usize * 8;
        page[at] = page[at].wrapping_add(1);
    }
    seal(page);
}

/// Returns the checksum of a page, which must be that which it was sealed with.
pub(super) fn verified(page: &[u8]) -> Option<u64> {
    let sum = sum(page);
    (page[SUM_AT..] == sum.to_le_bytes()).then_some(sum)
}

fn seal(page: &mut [u8]) {
    let sum = sum(page);
    page[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
}

/// Returns the checksum of the bytes before the checksum.
fn sum(page: &[u8]) -> u64 {
    page[..SUM_AT].chunks_exact(8).fold(0xcbf2_9ce4_8422_2325, |sum: u64, word| {
        let word = u64::from_le_bytes(word.try_into().expect("8 bytes"));
        (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_byte_is_noticed() {
        let mut page = [0; PAGE];
        Samples::new().fill(&mut page, 7);
        assert!(verified(&page).is_some());
        update(&mut page, &mut SplitMix64::new(7));
        assert!(verified(&page).is_some());
        page[100] ^= 1;
        assert_eq!(verified(&page), None);
    }
}
