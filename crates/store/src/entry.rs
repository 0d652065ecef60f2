//! A slot's information about its page, packed into two words.
//!
//! ```text
//!   state:  | stamp 32 | 0 | len 17 | priority 2 | flags 7 | kind 2 | locked 1 |
//!   value:  | 0 | handle 63 |              a page in memory: its object, by its handle
//!           | 1 | address 63 |             or by where it is, if it is the slot's own
//!           repeated word                   a same-filled page
//!           | first unit 32 | checksum 32 | a page on the backing file
//! ```
//!
//! - E1: an empty entry is all zeros, flags and stamp included.
//! - E2: kind, priority and length say how the bytes are read, wherever they lie; no option is
//!   asked.

use std::num::NonZeroU64;

use zfold_pool::{Address, Handle};

/// The contents of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Kind {
    /// Nothing.
    Empty = 0,
    /// A page of one repeated word.
    Same = 1,
    /// A compressed page.
    Compressed = 2,
    /// A page as it is.
    Raw = 3,
}

/// A fact about a page that takes one bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Flag {
    /// Stored or loaded since the clock hand passed: it has a second chance.
    Referenced = State::FLAGS_SHIFT,
    /// Not used since it was last marked idle.
    Idle,
    /// No codec of the list makes it smaller.
    Incompressible,
    /// Chosen to be written back or recompressed; any use takes the mark away.
    Marked,
    /// Its object is in the table of duplicates.
    Shared,
    /// The snapshot epoch in which it was put here.
    Epoch,
    /// Its bytes are on the backing file.
    Backed,
}

/// The state word of a slot, without what it refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct State(u64);

impl State {
    pub(crate) const EMPTY: Self = Self(0);
    /// The bit that locks a slot; never part of an entry.
    pub(crate) const LOCKED: u64 = 1;

    const KIND_SHIFT: u32 = 1;
    const KIND_MASK: u64 = 3;
    const FLAGS_SHIFT: u32 = Self::KIND_SHIFT + 2;
    const PRIORITY_SHIFT: u32 = Self::FLAGS_SHIFT + 7;
    const PRIORITY_MASK: u64 = 3;
    const LEN_SHIFT: u32 = Self::PRIORITY_SHIFT + 2;
    const LEN_MASK: u64 = (1 << 17) - 1;
    const STAMP_SHIFT: u32 = 32;

    /// Bits of all facts, which are everything but the stamp.
    pub(crate) const FACTS_BITS: u32 = Self::LEN_SHIFT + Self::LEN_MASK.count_ones();

    /// Codecs that a state can tell apart: the first, and those for recompression.
    pub(crate) const CODECS_MAX: usize = Self::PRIORITY_MASK as usize + 1;

    /// The longest page whose length fits into a state.
    pub(crate) const LEN_MAX: usize = Self::LEN_MASK as usize;

    /// Returns the state of a new page: referenced, and nothing else.
    #[inline]
    pub(crate) fn new(kind: Kind, len: usize, priority: u8) -> Self {
        debug_assert!(len <= Self::LEN_MAX && u64::from(priority) <= Self::PRIORITY_MASK);
        let word = (kind as u64) << Self::KIND_SHIFT
            | u64::from(priority) << Self::PRIORITY_SHIFT
            | (len as u64) << Self::LEN_SHIFT;
        Self(word).with(Flag::Referenced)
    }

    /// Returns the state in an unlocked or locked word.
    #[inline]
    pub(crate) fn from_word(word: u64) -> Self {
        Self(word & !Self::LOCKED)
    }

    #[inline]
    pub(crate) fn word(self) -> u64 {
        self.0
    }

    /// Returns the state, without a stamp, in the lowest bits of an unlocked or locked word.
    #[inline]
    pub(crate) fn from_facts(word: u64) -> Self {
        Self::from_word(word & ((1 << Self::FACTS_BITS) - 1))
    }

    /// Returns everything but the stamp, in the lowest bits.
    #[inline]
    pub(crate) fn facts(self) -> u64 {
        self.0 & ((1 << Self::FACTS_BITS) - 1)
    }

    #[inline]
    pub(crate) fn kind(self) -> Kind {
        match self.0 >> Self::KIND_SHIFT & Self::KIND_MASK {
            0 => Kind::Empty,
            1 => Kind::Same,
            2 => Kind::Compressed,
            _ => Kind::Raw,
        }
    }

    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.kind() == Kind::Empty
    }

    /// Returns whether the page's bytes are an object of the pool.
    #[inline]
    pub(crate) fn in_pool(self) -> bool {
        matches!(self.kind(), Kind::Compressed | Kind::Raw) && !self.has(Flag::Backed)
    }

    #[inline]
    pub(crate) fn has(self, flag: Flag) -> bool {
        self.0 >> flag as u32 & 1 != 0
    }

    #[inline]
    pub(crate) fn with(self, flag: Flag) -> Self {
        Self(self.0 | 1 << flag as u32)
    }

    #[inline]
    pub(crate) fn without(self, flag: Flag) -> Self {
        Self(self.0 & !(1 << flag as u32))
    }

    /// Returns the state with `flag` set or not.
    #[inline]
    pub(crate) fn set(self, flag: Flag, on: bool) -> Self {
        if on { self.with(flag) } else { self.without(flag) }
    }

    /// Returns which codec of the list compressed the page, 0 for the first.
    #[inline]
    pub(crate) fn priority(self) -> u8 {
        (self.0 >> Self::PRIORITY_SHIFT & Self::PRIORITY_MASK) as u8
    }

    /// Returns the length in bytes of the stored data, without a key header.
    #[inline]
    pub(crate) fn len(self) -> usize {
        (self.0 >> Self::LEN_SHIFT & Self::LEN_MASK) as usize
    }

    /// Returns the second, counted from the making of the store, of the last use.
    #[inline]
    pub(crate) fn stamp(self) -> u32 {
        (self.0 >> Self::STAMP_SHIFT) as u32
    }

    #[inline]
    pub(crate) fn stamped(self, second: u32) -> Self {
        Self(self.0 & ((1 << Self::STAMP_SHIFT) - 1) | u64::from(second) << Self::STAMP_SHIFT)
    }

    /// Returns the state after a use in this second: referenced, not idle, not marked.
    #[inline]
    pub(crate) fn used(self, second: u32) -> Self {
        self.with(Flag::Referenced).without(Flag::Idle).without(Flag::Marked).stamped(second)
    }
}

/// The bit of a value that distinguishes an address from a handle.
const OWNED: u64 = 1 << 63;

/// The contents of a slot, with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) state: State,
    pub(crate) value: u64,
}

impl Entry {
    pub(crate) const EMPTY: Self = Self { state: State::EMPTY, value: 0 };

    /// Returns the entry of a page of `word` repeated.
    pub(crate) fn same(word: u64) -> Self {
        Self { state: State::new(Kind::Same, 0, 0), value: word }
    }

    /// Returns the entry of a page whose object has a handle.
    #[inline]
    pub(crate) fn of_handle(state: State, handle: Handle) -> Self {
        Self { state, value: handle.to_bits().get() }
    }

    /// Returns the entry of a page whose object its slot owns.
    #[inline]
    pub(crate) fn of_address(state: State, at: Address) -> Self {
        Self { state, value: OWNED | at.to_bits() }
    }

    /// Returns whether two entries name the same bytes, whatever their flags.
    pub(crate) fn is_form_of(self, before: Self) -> bool {
        let form = |entry: Self| (entry.state.kind(), entry.state.has(Flag::Backed), entry.value);
        form(self) == form(before)
    }

    /// Returns where the object of a page is, if its slot owns it.
    #[inline]
    pub(crate) fn address(self) -> Option<Address> {
        let owned = self.state.in_pool() && self.value & OWNED != 0;
        owned.then(|| Address::from_bits(self.value & !OWNED))
    }

    /// Returns the handle of a page in the pool whose object has one.
    #[inline]
    pub(crate) fn handle(self) -> Handle {
        debug_assert!(self.state.in_pool() && self.value & OWNED == 0);
        Handle::from_bits(NonZeroU64::new(self.value).expect("an object has a handle"))
    }

    /// Returns where a page on the backing file lies.
    #[inline]
    pub(crate) fn place(self) -> Place {
        debug_assert!(self.state.has(Flag::Backed));
        Place { unit: (self.value >> 32) as u32, checksum: self.value as u32 }
    }
}

/// Where a page lies on the backing file, and the hash of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The first unit.
    pub(crate) unit: u32,
    /// The lower half of the hash of the page's kept bytes, seeded with its key.
    pub(crate) checksum: u32,
}

impl Place {
    pub(crate) fn value(self) -> u64 {
        u64::from(self.unit) << 32 | u64::from(self.checksum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAGS: [Flag; 7] = [
        Flag::Referenced,
        Flag::Idle,
        Flag::Incompressible,
        Flag::Marked,
        Flag::Shared,
        Flag::Epoch,
        Flag::Backed,
    ];

    #[test]
    fn fields_do_not_disturb_each_other() {
        for kind in [Kind::Same, Kind::Compressed, Kind::Raw] {
            for (len, priority, second) in [(0, 0, 0), (State::LEN_MAX, 3, u32::MAX), (77, 2, 9)] {
                for flag in FLAGS {
                    let plain = State::new(kind, len, priority).stamped(second);
                    let state = plain.with(flag);
                    let fields = (state.kind(), state.len(), state.priority(), state.stamp());
                    assert_eq!(fields, (kind, len, priority, second), "{flag:?}");
                    assert!(state.has(flag) && !state.without(flag).has(flag));
                    assert_eq!(State::from_word(state.word() | State::LOCKED), state);
                    let facts = u64::MAX << State::FACTS_BITS | state.facts() | State::LOCKED;
                    assert_eq!(State::from_facts(facts), state.stamped(0));
                }
            }
        }
    }

    #[test]
    fn a_use_takes_marks_away() {
        let state = State::new(Kind::Raw, 4096, 0).without(Flag::Referenced);
        let used = state.with(Flag::Idle).with(Flag::Marked).used(5);
        assert_eq!(used, state.with(Flag::Referenced).stamped(5));
    }

    #[test]
    fn an_address_is_told_from_a_handle_and_from_what_is_no_object() {
        let at = Address::from_bits((1 << 54) - 3);
        for kind in [Kind::Compressed, Kind::Raw] {
            let entry = Entry::of_address(State::new(kind, 77, 0), at);
            assert_eq!(entry.address(), Some(at));
            let backed = Entry { state: entry.state.with(Flag::Backed), ..entry };
            assert_eq!(backed.address(), None);
        }
        assert_eq!(Entry::same(u64::MAX).address(), None);
        let handle = Handle::from_bits(NonZeroU64::new((1 << 63) - 1).expect("not zero"));
        let entry = Entry::of_handle(State::new(Kind::Raw, 4096, 0), handle);
        assert_eq!((entry.address(), entry.handle()), (None, handle));
    }

    #[test]
    fn a_place_is_what_its_value_says() {
        let place = Place { unit: 0xFFFF_FFF0, checksum: 0x8000_0001 };
        let state = State::new(Kind::Raw, 4096, 0).with(Flag::Backed);
        assert_eq!(Entry { state, value: place.value() }.place(), place);
        assert!(!state.in_pool());
    }
}
