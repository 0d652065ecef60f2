//! Numbers and bytes that look random: the same for the same seed, on every machine.

/// A seeded stream of numbers.
///
/// Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014: any two seeds,
/// however close, give unrelated numbers from the first one on.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns an index into what has `len` places, which is not 0.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Returns true once in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Returns one of several values.
    pub fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())].clone()
    }

    /// Fills `bytes` with noise.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&self.word().to_le_bytes()[..part.len()]);
        }
    }

    /// Returns bytes that do not compress.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.fill(&mut bytes);
        bytes
    }

    /// Returns bytes of which about half can be compressed away.
    pub fn half_noise(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = b"........and half".repeat(len.div_ceil(16));
        bytes.chunks_mut(16).for_each(|part| self.fill(&mut part[..8]));
        bytes.truncate(len);
        bytes
    }
}

/// Returns a number that looks random and belongs to `word`.
pub fn mixed(word: u64) -> u64 {
    Random::new(word).word()
}

/// Returns bytes that do not compress, different for each seed.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    noisy(seed, len, len)
}

/// Returns `len` bytes, different for each seed, of which the first `noisy` ones do not compress
/// and the others do.
pub fn noisy(seed: u64, noisy: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![seed as u8; len];
    Random::new(seed).fill(&mut bytes[..noisy]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_the_published_one() {
        let mut random = Random::new(1_234_567);
        let first = [(); 3].map(|()| random.word());
        assert_eq!(first, [6457827717110365317, 3203168211198807973, 9817491932198370423]);
    }

    #[test]
    fn bytes_are_noise_as_far_as_asked_for() {
        let bytes = noisy(7, 13, 20);
        assert_eq!((&bytes[..8], &bytes[13..]), (&mixed(7).to_le_bytes()[..], &[7; 7][..]));
        assert_eq!(noise(7, 13), bytes[..13]);
    }
}
