//! Numbers that are no handles, and that every call refuses them.

use zfold_pool::{Handle, HandleError, Pool};

/// An endless sequence of mixed words (SplitMix64).
pub(super) fn words(seed: u64) -> impl Iterator<Item = u64> {
    (1..).map(move |n: u64| {
        let word = seed.wrapping_add(n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ word >> 31
    })
}

/// Asserts that every call refuses a handle.
pub(super) fn refused(pool: &dyn Pool, handle: Handle) {
    assert_eq!(pool.read(handle).err(), Some(HandleError::Stale), "read {handle:?}");
    assert_eq!(pool.free(handle), Err(HandleError::Stale), "free {handle:?}");
}

/// Returns a number that is wrong in a way that `word` chooses, most of them near to a handle's.
pub(super) fn forged(near: u64, word: u64) -> u64 {
    let (place, serial) = (near & u64::from(u32::MAX), near >> 32 << 32);
    let (kind, rest) = (word & 7, word >> 3);
    match kind {
        // Serial 0: any low number, the place of the handle, one beside it.
        0 => rest & 0x3fff,
        1 => place,
        2 => place ^ (rest & 0x1ff),
        // One bit of the serial or of the place.
        3 => near ^ 1 << (32 + rest % 32),
        4 => near ^ 1 << (rest % 32),
        // The place of another serial, the serial at another place.
        5 => place | rest << 32,
        6 => serial | rest & u64::from(u32::MAX),
        _ => near.rotate_left(rest as u32 % 64) ^ rest,
    }
}
