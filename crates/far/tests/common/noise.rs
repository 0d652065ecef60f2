//! Bytes that do not compress.

/// Returns bytes that differ by seed and do not repeat.
pub(crate) fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut word = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        word.to_le_bytes()
    };
    std::iter::repeat_with(next).flatten().take(len).collect()
}
