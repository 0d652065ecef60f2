//! In which order pages come and go: that of the runs in a real kernel that pool sizes were
//! checked against.
//!
//! ```text
//! numbers of Xorshift64 -> permutation a, then b, then c
//! fill:    keys ascending; key k gets page a[k]
//! free:    keys b[0], b[1], ... b[n/2 - 1]
//! refill:  the same keys ascending; key b[i] gets the page that key b[(i + 7) mod n/2] had
//! load:    keys c[0], c[1], ... c[n - 1], after the fill and after the refill
//! ```
//!
//! Keys stand for the addresses of a process, which the kernel swaps out in ascending order. The
//! refill brings the freed contents back, each to another place.

use crate::rng::Xorshift64;

/// By how many of the freed keys contents move on in the refill.
const REFILL_ROTATION: usize = 7;

/// The order of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Order {
    /// By key, the page of the fill.
    pub(super) filled: Vec<usize>,
    /// By key, the page from the refill on.
    pub(super) refilled: Vec<usize>,
    /// All keys, ascending.
    pub(super) keys: Vec<usize>,
    /// The keys that are freed, in that order.
    pub(super) freed: Vec<usize>,
    /// The keys that are refilled, ascending.
    pub(super) refills: Vec<usize>,
    /// All keys in the order of the loads.
    pub(super) loads: Vec<usize>,
}

impl Order {
    /// Returns the order that `seed` names for a number of pages.
    pub(super) fn new(pages: usize, seed: u64) -> Self {
        let mut rng = Xorshift64::new(seed);
        let filled = rng.permutation(pages);
        let mut freed = rng.permutation(pages);
        freed.truncate(pages / 2);
        let mut refilled = filled.clone();
        for (i, &key) in freed.iter().enumerate() {
            refilled[key] = filled[freed[(i + REFILL_ROTATION) % freed.len()]];
        }
        let mut refills = freed.clone();
        refills.sort_unstable();
        let loads = rng.permutation(pages);
        Self { filled, refilled, keys: (0..pages).collect(), freed, refills, loads }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_contents_move_on_by_seven() {
        let order = Order::new(40, 3);
        let (freed, filled) = (&order.freed, &order.filled);
        assert_eq!(order.refilled[freed[0]], filled[freed[7]]);
        assert_eq!(order.refilled[freed[19]], filled[freed[6]]);
        for key in (0..40).filter(|key| !freed.contains(key)) {
            assert_eq!(order.refilled[key], filled[key]);
        }
    }

    #[test]
    fn few_pages_have_an_order_too() {
        assert!(Order::new(1, 1).freed.is_empty());
        assert_eq!(Order::new(3, 1).freed, Order::new(3, 1).refills);
    }
}
