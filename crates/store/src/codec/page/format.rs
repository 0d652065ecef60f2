//! The numbers of the format, which docs/design/page-format.md specifies.

use super::shuffle::Order;

/// The longest page that the format can hold: offsets have 16 bits.
pub(super) const PAGE_LEN_MAX: usize = 1 << 16;
/// The smallest distance back of a match, so that eight bytes can be copied at once.
pub(super) const OFFSET_MIN: usize = 8;
/// The largest multiple of [`OFFSET_MIN`] that takes one byte.
const SHORT_OFFSET_MAX: usize = 256 * OFFSET_MIN;
/// Returns whether `offset` takes one byte; any other takes two.
#[inline(always)]
pub(super) fn is_short(offset: usize) -> bool {
    offset.is_multiple_of(OFFSET_MIN) && offset <= SHORT_OFFSET_MAX
}

/// The shortest match.
pub(super) const MATCH_MIN: usize = 3;
/// The value of a token's literal bits at which a field says how many more there are.
pub(super) const LITERALS_FULL: usize = 3;
/// The same for the bits of the match.
pub(super) const MATCH_FULL: usize = 15;
/// The byte of a length field after which the length takes two bytes.
pub(super) const LENGTH_ESCAPE: usize = 255;
/// The offsets that count as used before the first match.
pub(super) const FIRST_RECENT: [usize; 2] = [8, 8];

/// How a token encodes the offset of its match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Mode {
    /// The last offset.
    Last = 0,
    /// The last but one.
    LastButOne = 1,
    /// One byte of the fields: a multiple of eight.
    Short = 2,
    /// Two bytes of the fields: any offset.
    General = 3,
}

/// | mode 2 | literals 2 | match 4 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Token(pub(super) u8);

impl Token {
    const MODE_SHIFT: u32 = 6;
    const LITERALS_SHIFT: u32 = 4;

    #[inline]
    pub(super) fn new(mode: Mode, literals: usize, matched: usize) -> Self {
        debug_assert!(literals <= LITERALS_FULL && matched <= MATCH_FULL);
        let (literals, matched) = (literals as u8, matched as u8);
        Self((mode as u8) << Self::MODE_SHIFT | literals << Self::LITERALS_SHIFT | matched)
    }

    #[inline]
    pub(super) fn mode(self) -> Mode {
        match self.0 >> Self::MODE_SHIFT {
            0 => Mode::Last,
            1 => Mode::LastButOne,
            2 => Mode::Short,
            _ => Mode::General,
        }
    }

    /// Returns the number of literals, up to [`LITERALS_FULL`].
    #[inline]
    pub(super) fn literals(self) -> usize {
        usize::from(self.0 >> Self::LITERALS_SHIFT) & LITERALS_FULL
    }

    /// Returns the length of the match beyond [`MATCH_MIN`], up to [`MATCH_FULL`].
    #[inline]
    pub(super) fn matched(self) -> usize {
        usize::from(self.0) & MATCH_FULL
    }
}

/// The header of a block.
///
/// | order 4 | tokens 12 |, or | order 4 | tokens 20 | in pages longer than 4096 bytes
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// How the bytes of the page are ordered.
    pub(super) order: Order,
    /// Bytes of the token stream.
    pub(super) tokens: usize,
}

impl Header {
    /// The longest header.
    const LEN_MAX: usize = 3;

    /// Returns the length of the header of a page of `page_len` bytes.
    #[inline]
    pub(super) fn len(page_len: usize) -> usize {
        if page_len <= 4096 { 2 } else { Self::LEN_MAX }
    }

    /// Returns the header of `block`, unless it has none or one of another version.
    #[inline]
    pub(super) fn read(block: &[u8], page_len: usize) -> Option<Self> {
        let len = Self::len(page_len);
        let mut word = [0; 4];
        word[..len].copy_from_slice(block.get(..len)?);
        let word = u32::from_le_bytes(word);
        let tokens_bits = Self::tokens_bits(page_len);
        let order = Order::from_bits(word >> tokens_bits)?;
        Some(Self { order, tokens: (word & ((1 << tokens_bits) - 1)) as usize })
    }

    /// Puts the header in front of a block.
    pub(super) fn write(self, block: &mut [u8], page_len: usize) {
        let tokens_bits = Self::tokens_bits(page_len);
        debug_assert!(self.tokens < 1 << tokens_bits);
        let word = (self.order as u32) << tokens_bits | self.tokens as u32;
        let len = Self::len(page_len);
        block[..len].copy_from_slice(&word.to_le_bytes()[..len]);
    }

    #[inline]
    fn tokens_bits(page_len: usize) -> u32 {
        8 * Self::len(page_len) as u32 - 4
    }
}
