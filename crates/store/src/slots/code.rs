//! How the word of a narrow slot encodes a value, in 35 bits above the [facts](State::facts).
//!
//! ```text
//!   object that the slot owns:   | address |
//!   same-filled page:            | 0 | the word |              if it is less than 2^33
//!                                | 1 | its lower half |        if both halves are equal
//!                                | 2 | its upper 33 bits |     if the others are zeros
//!   any other:                   all ones: the value lies beside the group
//! ```

use zfold_pool::Address;

use crate::entry::{Entry, Kind, State};

/// Bits of a slot's word below the code.
pub(super) const CODE_SHIFT: u32 = State::FACTS_BITS;

/// Stands for a value that lies beside the group.
pub(super) const BESIDE: u64 = (1 << (u64::BITS - CODE_SHIFT)) - 1;

/// Bits of a same-filled page's word in a code.
const PART: u32 = 33;

const LOW: u64 = 0;
const TWICE: u64 = 1;
const HIGH: u64 = 2;

const TWO: u64 = 1 << 32 | 1;

/// Returns the code of an entry's value, if it has one.
#[inline]
pub(super) fn of(entry: Entry) -> Option<u64> {
    if entry.state.kind() == Kind::Same {
        return of_word(entry.value);
    }
    entry.address().map(Address::to_bits).filter(|&bits| bits < BESIDE)
}

/// Returns the value that a code stands for in a state; `None` if it lies beside the group.
#[inline]
pub(super) fn value(state: State, code: u64) -> Option<u64> {
    match state.kind() {
        Kind::Empty => Some(0),
        _ if code == BESIDE => None,
        Kind::Same => Some(word(code)),
        _ => Some(Entry::of_address(state, Address::from_bits(code)).value),
    }
}

fn of_word(word: u64) -> Option<u64> {
    let (low, high) = (word & ((1 << PART) - 1), word >> (u64::BITS - PART));
    if low == word {
        Some(LOW << PART | low)
    } else if word == (word & u64::from(u32::MAX)) * TWO {
        Some(TWICE << PART | word & u64::from(u32::MAX))
    } else if word == high << (u64::BITS - PART) {
        Some(HIGH << PART | high)
    } else {
        None
    }
}

fn word(code: u64) -> u64 {
    let part = code & ((1 << PART) - 1);
    match code >> PART {
        LOW => part,
        TWICE => part * TWO,
        _ => part << (u64::BITS - PART),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_code_comes_back_from_it() {
        let words = [0, 1, 1 << 32, (1 << 33) - 1, u64::MAX, 0x7070_7070_7070_7070, 1 << 63];
        let floats = [1.0_f64, -0.5, 3.0, 1e6].map(f64::to_bits);
        for word in words.into_iter().chain(floats) {
            let entry = Entry::same(word);
            let code = of(entry).expect("it has a code");
            assert!(code < BESIDE, "{word:#x}");
            assert_eq!(value(entry.state, code), Some(word), "{word:#x}");
        }
        let state = State::new(Kind::Compressed, 900, 1);
        for bits in [0, 77, BESIDE - 1] {
            let entry = Entry::of_address(state, Address::from_bits(bits));
            assert_eq!(of(entry), Some(bits));
            assert_eq!(value(state, bits), Some(entry.value));
        }
    }

    #[test]
    fn what_has_no_code_lies_beside_the_group() {
        for word in [1 << 33 | 1, 0x1234_5678_9ABC_DEF0, 0.1_f64.to_bits()] {
            assert_eq!(of(Entry::same(word)), None, "{word:#x}");
        }
        let state = State::new(Kind::Raw, 4096, 0);
        assert_eq!(of(Entry::of_address(state, Address::from_bits(BESIDE))), None);
        assert_eq!(of(Entry { state, value: 5 }), None, "a handle");
        assert_eq!(value(state, BESIDE), None);
    }
}
