//! A small seeded generator, so that a seed names one run on every machine and version.
//!
//! SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014):
//! a counter in steps of the golden ratio, mixed by two multiplications. Not for secrets.

/// A seeded stream of 64-bit numbers.
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

    /// Puts `items` into a random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u64 + 1) as usize;
            items.swap(last, other);
        }
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
    fn shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..1000).collect();
        SplitMix64::new(1).shuffle(&mut items);
        assert_ne!(items, (0..1000).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn sample_is_ascending_and_of_the_wanted_size() {
        let sample = SplitMix64::new(7).sample(10_000, 100);
        assert_eq!(sample.len(), 100);
        assert!(sample.is_sorted_by(|a, b| a < b));
        assert!(sample.last().is_some_and(|&item| item < 10_000));
    }

    #[test]
    fn sample_takes_all_when_there_are_few() {
        assert_eq!(SplitMix64::new(7).sample(3, 100), [0, 1, 2]);
    }
}
