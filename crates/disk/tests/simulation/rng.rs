//! What a seed draws.

/// A seeded stream of numbers (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
/// Generators, 2014).
#[derive(Debug)]
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Returns true once in `times`.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }

    /// Returns `len` bytes of one of several kinds: zeros, one word, one of a few texts that come
    /// up again, a text of its own, or noise up to some place.
    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let kind = self.below(8);
        let unique = self.next();
        let text = |seed: u64| (0..len).map(move |at| (seed >> (at / 9 % 8 * 8)) as u8);
        match kind {
            0 => vec![0; len],
            1 => unique.to_le_bytes().into_iter().cycle().take(len).collect(),
            2 => text(0x0102_0304_0506_0708 * (1 + unique % 3)).collect(),
            3..=5 => text(unique).collect(),
            _ => {
                let noisy = self.below(len as u64 + 1) as usize;
                let mut noise = Rng(unique);
                text(unique)
                    .enumerate()
                    .map(|(at, byte)| if at < noisy { noise.next() as u8 } else { byte })
                    .collect()
            }
        }
    }
}
