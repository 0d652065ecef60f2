//! The three streams of a block while it is written: tokens, literals, and fields.
//!
//! - S1: a sequence puts at most as many bytes into each stream as it has of the page, and one
//!   into the tokens: its match is three bytes or more and its fields take two, plus one or three
//!   for a count of three literals, or of 258, and the same for a match of 18 or of 273.

use std::ops::Range;

use super::format::{
    FIRST_RECENT, Header, LENGTH_ESCAPE, LITERALS_FULL, MATCH_FULL, MATCH_MIN, Mode, OFFSET_MIN,
    Token, is_short,
};
use super::raw::{load, store};
use super::shuffle::Order;

/// Bytes that are copied at once.
const COPY: usize = 16;

/// The streams of one page, and the offsets used last.
pub(super) struct Streams {
    /// Each with room for a page and `COPY` bytes.
    tokens: Box<[u8]>,
    literals: Box<[u8]>,
    /// Filled from its end on.
    fields: Box<[u8]>,
    tokens_len: usize,
    literals_len: usize,
    fields_start: usize,
    /// The last offset and the last but one.
    pub(super) recent: [usize; 2],
}

impl Streams {
    /// Returns streams for pages of up to `page_len` bytes.
    pub(super) fn new(page_len: usize) -> Self {
        let stream = || vec![0; page_len + COPY].into_boxed_slice();
        let (tokens, literals, fields) = (stream(), stream(), stream());
        let (tokens_len, literals_len, fields_start) = (0, 0, fields.len());
        let recent = FIRST_RECENT;
        Self { tokens, literals, fields, tokens_len, literals_len, fields_start, recent }
    }

    /// Empties the streams, for a page of `page_len` bytes.
    pub(super) fn begin(&mut self, page_len: usize) {
        if self.tokens.len() < page_len + COPY {
            *self = Self::new(page_len);
        }
        (self.tokens_len, self.literals_len) = (0, 0);
        self.fields_start = self.fields.len();
        self.recent = FIRST_RECENT;
    }

    /// Adds a sequence: literals of `page`, and a match behind them.
    #[inline(always)]
    pub(super) fn sequence(
        &mut self,
        page: &[u8],
        literals: Range<usize>,
        offset: usize,
        len: usize,
    ) {
        debug_assert!(len >= MATCH_MIN && (OFFSET_MIN..=literals.end).contains(&offset));
        let literals = self.literals(page, literals);
        let mode = self.offset(offset);
        let matched = self.length(len - MATCH_MIN, MATCH_FULL);
        self.token(Token::new(mode, literals, matched));
    }

    /// Adds the last sequence, which has no match.
    pub(super) fn last(&mut self, page: &[u8], literals: Range<usize>) {
        let literals = self.literals(page, literals);
        self.token(Token::new(Mode::Last, literals, 0));
    }

    #[inline(always)]
    fn token(&mut self, token: Token) {
        self.tokens[self.tokens_len] = token.0;
        self.tokens_len += 1;
    }

    /// Adds literals and returns what the token says of their number.
    #[inline(always)]
    fn literals(&mut self, page: &[u8], from: Range<usize>) -> usize {
        let (at, count) = (self.literals_len, from.len());
        self.literals_len += count;
        if from.start + COPY <= page.len() {
            // SAFETY: the bound is checked.
            let first: [u8; COPY] = unsafe { load(page, from.start) };
            debug_assert!(at <= from.start && self.literals.len() >= page.len());
            // SAFETY: by S1 there are at most as many literals as bytes of the page before these,
            // and the stream is longer than the page.
            unsafe { store(&mut self.literals, at, first) };
            if count > COPY {
                self.literals[at + COPY..at + count]
                    .copy_from_slice(&page[from.start + COPY..from.end]);
            }
        } else {
            self.literals[at..at + count].copy_from_slice(&page[from]);
        }
        self.length(count, LITERALS_FULL)
    }

    /// Adds the encoding of an offset and returns its mode.
    #[inline(always)]
    fn offset(&mut self, offset: usize) -> Mode {
        if offset == self.recent[0] {
            return Mode::Last;
        }
        let last_but_one = self.recent[1];
        self.recent = [offset, self.recent[0]];
        if offset == last_but_one {
            Mode::LastButOne
        } else if is_short(offset) {
            self.field((offset / OFFSET_MIN - 1) as u8);
            Mode::Short
        } else {
            self.wide_field((offset - OFFSET_MIN) as u16);
            Mode::General
        }
    }

    /// Adds a field if `len` needs one, and returns what the token says of it.
    #[inline(always)]
    fn length(&mut self, len: usize, full: usize) -> usize {
        if len < full {
            return len;
        }
        if len - full < LENGTH_ESCAPE {
            self.field((len - full) as u8);
        } else {
            self.field(LENGTH_ESCAPE as u8);
            self.wide_field((len - full) as u16);
        }
        full
    }

    #[inline(always)]
    fn field(&mut self, byte: u8) {
        self.fields_start -= 1;
        self.fields[self.fields_start] = byte;
    }

    #[inline(always)]
    fn wide_field(&mut self, value: u16) {
        self.fields_start -= 2;
        let to = &mut self.fields[self.fields_start..][..2];
        to.copy_from_slice(&value.to_le_bytes());
    }

    /// Returns the length of the block of a page of `page_len` bytes.
    pub(super) fn block_len(&self, page_len: usize) -> usize {
        let fields = self.fields.len() - self.fields_start;
        Header::len(page_len) + self.tokens_len + self.literals_len + fields
    }

    /// Puts the block into `out` and returns its length, if there is room.
    pub(super) fn finish(&self, order: Order, page_len: usize, out: &mut [u8]) -> Option<usize> {
        let len = self.block_len(page_len);
        let out = out.get_mut(..len)?;
        Header { order, tokens: self.tokens_len }.write(out, page_len);
        let (tokens, rest) = out[Header::len(page_len)..].split_at_mut(self.tokens_len);
        let (literals, fields) = rest.split_at_mut(self.literals_len);
        tokens.copy_from_slice(&self.tokens[..self.tokens_len]);
        literals.copy_from_slice(&self.literals[..self.literals_len]);
        fields.copy_from_slice(&self.fields[self.fields_start..]);
        Some(len)
    }

    pub(super) fn working_bytes(&self) -> usize {
        self.tokens.len() + self.literals.len() + self.fields.len()
    }
}
