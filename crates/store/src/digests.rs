//! Digests, of 128 bits each, of pages as a store took them: they show whether a page that leaves
//! memory again still equals the stored one, without decoding that.
//!
//! - D1: the digest of a key is read by a thread that has seen, through a lock or an atomic of the
//!   caller, that the digest was set before. A thread that reads without that gets some value,
//!   perhaps halves of two, and must make sure by other means that the key was in use for its page
//!   all the while.
//!
//! HighwayHash (Alakuijala, Cox and Wassenberg, 2016) under a key of 256 random bits, which stays
//! within this process, as do all digests: pages cannot be made to collide on purpose, and two that
//! differ do so by chance once in 2^128.

use std::io;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use highway::{HighwayHash as _, HighwayHasher, Key};
use zfold_pool::source::Reservation;

use crate::reserve::reserve;

/// The digest of a page. Those of different [`Digests`] do not compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest([u64; 2]);

/// The digests of a store's keys.
#[derive(Debug)]
pub struct Digests {
    secret: [u64; 4],
    keys: u64,
    range: Arc<dyn Reservation>,
}

impl Digests {
    /// Returns a table for the keys `0..keys`, none of which has a digest.
    ///
    /// # Errors
    /// The system has no random numbers, or not so much address space.
    ///
    /// # Cost
    /// Address space of 16 bytes a key; memory for what was set.
    pub fn new(keys: NonZero<u64>) -> io::Result<Self> {
        let mut secret = [0; 32];
        let filled =
            rustix::rand::getrandom(&mut secret[..], rustix::rand::GetRandomFlags::empty())?;
        if filled != secret.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let words = |at: usize| u64::from_ne_bytes(secret.as_chunks().0[at]);
        let range = reserve(keys.get(), size_of::<Digest>()).map_err(io::Error::other)?;
        Ok(Self { secret: std::array::from_fn(words), keys: keys.get(), range })
    }

    /// Returns the digest of a page.
    ///
    /// # Cost
    /// 0.4 microseconds for 4 KiB.
    #[must_use]
    pub fn of(&self, page: &[u8]) -> Digest {
        Digest(HighwayHasher::new(Key(self.secret)).hash128(page))
    }

    /// Returns the digest of the page that is stored under a key (D1).
    ///
    /// # Panics
    /// If there is no such key.
    #[must_use]
    pub fn get(&self, key: u64) -> Digest {
        // Relaxed: D1.
        Digest(self.words(key).each_ref().map(|word| word.load(Ordering::Relaxed)))
    }

    /// Sets the digest of the page that is stored under a key (D1).
    ///
    /// # Panics
    /// If there is no such key.
    pub fn set(&self, key: u64, Digest(digest): Digest) {
        for (word, half) in self.words(key).iter().zip(digest) {
            word.store(half, Ordering::Relaxed);
        }
    }

    fn words(&self, key: u64) -> &[AtomicU64; 2] {
        assert!(key < self.keys, "key {key} of {}", self.keys);
        let all = self.range.base().cast::<[AtomicU64; 2]>();
        // SAFETY: the range holds one for each key.
        let words = unsafe { all.add(key as usize) };
        // SAFETY: committed when the table was made, aligned (the base is page aligned), zeros are
        // valid, and it is only ever accessed as atomics; it lives as long as the range.
        unsafe { words.as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bit_of_a_page_counts_and_each_table_has_its_own_secret() {
        let digests = Digests::new(NonZero::new(3).unwrap()).unwrap();
        let other = Digests::new(NonZero::new(3).unwrap()).unwrap();
        let mut page = vec![0_u8; 4096];
        let mut seen = vec![digests.of(&page)];
        assert_ne!(other.of(&page), seen[0]);
        for bit in 0..4096 * 8 {
            page[bit / 8] ^= 1 << (bit % 8);
            seen.push(digests.of(&page));
            page[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(digests.of(&page), seen[0]);
        seen.sort_by_key(|digest| digest.0);
        seen.dedup();
        assert_eq!(seen.len(), 4096 * 8 + 1);
    }

    #[test]
    fn each_key_has_its_own() {
        let digests = Digests::new(NonZero::new(3).unwrap()).unwrap();
        let all = [b"a", b"b", b"c"].map(|page| digests.of(page));
        (0..).zip(all).for_each(|(key, digest)| digests.set(key, digest));
        assert_eq!([0, 1, 2].map(|key| digests.get(key)), all);
    }
}
