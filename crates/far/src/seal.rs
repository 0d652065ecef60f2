//! Sealing: data that leaves the process is encrypted and cannot be changed, moved or replaced
//! unnoticed.
//!
//! An object is a row of sealed units: 512 bytes of AES-256-GCM, then the tag of 16 bytes. So any
//! range of units can be fetched and opened without the rest.
//!
//! - A1: the key is random, of this process, and in no other place than its memory.
//! - A2: no nonce is used twice. It is the object's number (64 bits) and the unit's index in the
//!   object (32 bits); a number is sealed once (log/L4).
//! - A3: `open` returns the bytes that were sealed under that number at that index, or an error.
//!   Units of other objects, of other places and of other processes have other nonces or keys.

use std::fmt;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};

use crate::map::UNIT;
use crate::twin::{Twin, broken};

/// Bytes of a tag.
const TAG: usize = 16;

/// Bytes of a sealed unit.
pub(crate) const SEALED: usize = UNIT + TAG;

/// The bytes are not those that were sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forged;

/// The key of a process.
pub(crate) struct Sealer {
    key: LessSafeKey,
}

impl Sealer {
    /// Returns a sealer with a new key from the system (A1); `None` if that has none.
    pub(crate) fn new() -> Option<Self> {
        let mut bytes = [0; 32];
        SystemRandom::new().fill(&mut bytes).ok()?;
        let key = UnboundKey::new(&AES_256_GCM, &bytes).ok()?;
        Some(Self { key: LessSafeKey::new(key) })
    }

    /// Appends whole units of `plain` to `sealed`; the first has `index` in the object (A2).
    pub(crate) fn seal(&self, number: u64, index: u32, plain: &[u8], sealed: &mut Vec<u8>) {
        for (unit, at) in plain.chunks_exact(UNIT).zip(index..) {
            let start = sealed.len();
            sealed.extend_from_slice(unit);
            if broken(Twin::OpensAnything) {
                sealed.resize(start + SEALED, 0);
                continue;
            }
            let tag = self
                .key
                .seal_in_place_separate_tag(nonce(number, at), Aad::empty(), &mut sealed[start..])
                .expect("a unit is shorter than what the algorithm can take");
            sealed.extend_from_slice(tag.as_ref());
        }
    }

    /// Fills `plain` from as many sealed units, which it destroys; the first has `index` (A3).
    pub(crate) fn open(
        &self,
        number: u64,
        index: u32,
        sealed: &mut [u8],
        plain: &mut [u8],
    ) -> Result<(), Forged> {
        let units = sealed.chunks_exact_mut(SEALED).zip(plain.chunks_exact_mut(UNIT));
        for ((unit, out), at) in units.zip(index..) {
            if broken(Twin::OpensAnything) {
                out.copy_from_slice(&unit[..UNIT]);
                continue;
            }
            let opened = self.key.open_in_place(nonce(number, at), Aad::empty(), unit);
            out.copy_from_slice(opened.map_err(|_| Forged)?);
        }
        Ok(())
    }
}

fn nonce(number: u64, index: u32) -> Nonce {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..].copy_from_slice(&index.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

impl fmt::Debug for Sealer {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(sealer: &Sealer, number: u64, plain: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        sealer.seal(number, 0, plain, &mut out);
        out
    }

    #[test]
    fn a_changed_moved_or_foreign_unit_does_not_open() {
        let sealer = Sealer::new().unwrap();
        let object = sealed(&sealer, 5, &[7; 2 * UNIT]);
        let mut out = vec![0; UNIT];
        let mut opens = |number, index, unit: &[u8]| {
            sealer.open(number, index, &mut unit.to_vec(), &mut out).is_ok()
        };
        assert!(opens(5, 0, &object[..SEALED]));
        assert!(!opens(5, 1, &object[..SEALED]), "another place");
        assert!(!opens(6, 0, &object[..SEALED]), "another object");
        for bit in [0, 8 * UNIT - 1, 8 * SEALED - 1] {
            let mut wrong = object[..SEALED].to_vec();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(!opens(5, 0, &wrong), "bit {bit}");
        }
        let other = sealed(&Sealer::new().unwrap(), 5, &[7; UNIT]);
        assert!(!opens(5, 0, &other), "another process");
    }

    #[test]
    fn equal_units_do_not_look_equal() {
        let sealer = Sealer::new().unwrap();
        let object = sealed(&sealer, 0, &[0; 2 * UNIT]);
        assert_ne!(object[..SEALED], object[SEALED..]);
        assert!(!object.windows(16).any(|part| part == [0; 16]));
    }

    #[test]
    fn the_key_is_not_shown() {
        assert_eq!(format!("{:?}", Sealer::new().unwrap()), "Sealer { .. }");
    }
}
