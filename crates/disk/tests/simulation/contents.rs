//! What is written.

use zfold_testing::Random;

/// Returns `len` bytes of one of several kinds: zeros, one word, one of a few texts that come
/// up again, a text of its own, or noise up to some place.
pub(crate) fn contents(random: &mut Random, len: usize) -> Vec<u8> {
    let kind = random.below(8);
    let unique = random.word();
    let text = |seed: u64| (0..len).map(move |at| (seed >> (at / 9 % 8 * 8)) as u8);
    match kind {
        0 => vec![0; len],
        1 => unique.to_le_bytes().into_iter().cycle().take(len).collect(),
        2 => text(0x0102_0304_0506_0708 * (1 + unique % 3)).collect(),
        3..=5 => text(unique).collect(),
        _ => {
            let noisy = random.index(len + 1);
            let mut bytes: Vec<u8> = text(unique).collect();
            Random::new(unique).fill(&mut bytes[..noisy]);
            bytes
        }
    }
}
