//! Small seeded generators, so that a seed names one run on every machine and version. Not for
//! secrets.
//!
//! - [`Xorshift64`] draws the order of events: it is the generator that the orders of runs in a
//!   real kernel were drawn from, so that the same seed gives the same order here and there.
//! - [`SplitMix64`] draws samples and made-up contents: any two seeds, however close, give
//!   unrelated numbers from the first one on.

/// A seeded stream of 64-bit numbers whose permutations name an order of events.
///
/// Marsaglia, "Xorshift RNGs", 2003: three shifts, here by 13, 7 and 17.
#[derive(Clone, Debug)]
pub struct Xorshift64 {
    state: u64,
}

impl Xorshift64 {
    /// The start that Marsaglia gives, and the default seed here.
    pub const SEED: u64 = 88_172_645_463_325_252;

    /// Returns the stream that `seed` names; 0, from which the generator would not move, names
    /// that of [`Self::SEED`].
    pub fn new(seed: u64) -> Self {
        Self { state: if seed == 0 { Self::SEED } else { seed } }
    }

    /// Returns the next number of the stream, which is never zero.
    pub fn next_u64(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    /// Returns the numbers below `len` in a random order: by Fisher and Yates from the last place
    /// down to the second, each exchanged with the place that a number of the stream leaves as
    /// remainder.
    pub fn permutation(&mut self, len: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..len).collect();
        for last in (1..len).rev() {
            let other = self.next_u64() % (last as u64 + 1);
            order.swap(last, other as usize);
        }
        order
    }
}

/// A seeded stream of 64-bit numbers.
///
/// Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014: a counter in
/// steps of the golden ratio, mixed by two multiplications.
#[derive(Clone, Debug)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// Returns the stream that `seed` names.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns the next number of the stream.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`, each with the same chance up to `bound / 2^64`.
    ///
    /// # Panics
    ///
    /// When `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no number below zero");
        let product = u128::from(self.next_u64()) * u128::from(bound);
        (product >> 64) as u64
    }

    /// Returns which of `population` items a uniform sample of `wanted` items takes, ascending.
    ///
    /// All of them when `wanted` is not below `population`.
    pub fn sample(&mut self, population: u64, wanted: u64) -> Vec<u64> {
        let mut wanted = wanted.min(population);
        let mut taken = Vec::with_capacity(wanted as usize);
        for item in 0..population {
            if wanted == 0 {
                break;
            }
            if self.below(population - item) < wanted {
                taken.push(item);
                wanted -= 1;
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_is_the_published_one() {
        let mut rng = SplitMix64::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        assert_eq!(first, [6457827717110365317, 3203168211198807973, 9817491932198370423]);
    }

    #[test]
    fn xorshift_gives_the_numbers_of_the_c_program() {
        let mut rng = Xorshift64::new(Xorshift64::SEED);
        let first: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        assert_eq!(first, [8748534153485358512, 3040900993826735515, 3453997556048239312]);
    }

    #[test]
    fn permutation_is_drawn_from_the_top() {
        let mut rng = Xorshift64::new(Xorshift64::SEED);
        let [a, b] = [rng.next_u64() % 3, rng.next_u64() % 2].map(|place| place as usize);
        let mut expected = [0, 1, 2];
        expected.swap(2, a);
        expected.swap(1, b);
        assert_eq!(Xorshift64::new(Xorshift64::SEED).permutation(3), expected);
        assert!(rng.permutation(0).is_empty());
    }

    #[test]
    fn sample_is_ascending_and_of_the_wanted_size() {
        let sample = SplitMix64::new(7).sample(10_000, 100);
        assert_eq!(sample.len(), 100);
        assert!(sample.is_sorted_by(|a, b| a < b));
        assert!(sample.last().is_some_and(|&item| item < 10_000));
    }
}
