//! The plain decoder: what a block means, without haste and without unsafe code.
//!
//! It decodes a whole block by itself in tests and on the fuzzer, against which the fast decoder is
//! held, and the end of a block behind the fast decoder.

use super::format::{
    FIRST_RECENT, Header, LENGTH_ESCAPE, LITERALS_FULL, MATCH_FULL, MATCH_MIN, Mode, OFFSET_MIN,
    Token,
};
use super::shuffle::Order;
use crate::codec::DecodeError;

/// How far a block is decoded: always between two sequences.
///
/// - D1: `token <= tokens_end <= literal <= field <= block.len()`.
/// - D2: the first `done` bytes of the page are decoded; no other byte of the page is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    /// Where the next token is, and where they end.
    pub(super) token: usize,
    pub(super) tokens_end: usize,
    /// Where the next literal is.
    pub(super) literal: usize,
    /// Behind the next field.
    pub(super) field: usize,
    /// Bytes of the page that are there.
    pub(super) done: usize,
    /// The last offset and the last but one.
    pub(super) recent: [usize; 2],
}

impl Cursor {
    /// Returns the cursor at the beginning of `block`, and the order of the page.
    ///
    /// # Errors
    /// When the header is not one, or speaks of more than the block has.
    pub(super) fn new(block: &[u8], page_len: usize) -> Result<(Self, Order), DecodeError> {
        let Header { order, tokens } = Header::read(block, page_len).ok_or(DecodeError)?;
        let token = Header::len(page_len);
        let tokens_end = token + tokens;
        if tokens_end > block.len() || !order.suits(page_len) {
            return Err(DecodeError);
        }
        let (literal, field) = (tokens_end, block.len());
        let recent = FIRST_RECENT;
        Ok((Self { token, tokens_end, literal, field, done: 0, recent }, order))
    }

    /// Decodes what is left.
    ///
    /// # Errors
    /// When the block does not fill the page exactly, or is not used up by it.
    pub(super) fn finish(mut self, block: &[u8], page: &mut [u8]) -> Result<(), DecodeError> {
        while self.token < self.tokens_end {
            self.sequence(block, page).ok_or(DecodeError)?;
        }
        let used_up = self.literal == self.field;
        if self.done == page.len() && used_up { Ok(()) } else { Err(DecodeError) }
    }

    fn sequence(&mut self, block: &[u8], page: &mut [u8]) -> Option<()> {
        let token = Token(block[self.token]);
        self.token += 1;

        let literals = self.length(block, token.literals(), LITERALS_FULL)?;
        let from = block[..self.field].get(self.literal..self.literal + literals)?;
        page.get_mut(self.done..self.done + literals)?.copy_from_slice(from);
        self.literal += literals;
        self.done += literals;
        if self.done == page.len() {
            // The last sequence: the page is full, and the token says nothing of a match.
            let bare = token == Token::new(Mode::Last, token.literals(), 0);
            return (bare && literals > 0).then_some(());
        }

        let offset = self.offset(block, token.mode())?;
        let len = MATCH_MIN + self.length(block, token.matched(), MATCH_FULL)?;
        let from = self.done.checked_sub(offset)?;
        let end = self.done + len;
        if end > page.len() {
            return None;
        }
        // A match may reach into itself: what has been copied is copied again.
        while self.done < end {
            let len = (end - self.done).min(self.done - from);
            page.copy_within(from..from + len, self.done);
            self.done += len;
        }
        Some(())
    }

    fn offset(&mut self, block: &[u8], mode: Mode) -> Option<usize> {
        let [last, last_but_one] = self.recent;
        let offset = match mode {
            Mode::Last => return Some(last),
            Mode::LastButOne => last_but_one,
            Mode::Short => (self.byte(block)? + 1) * OFFSET_MIN,
            Mode::General => self.wide(block)? + OFFSET_MIN,
        };
        self.recent = [offset, last];
        Some(offset)
    }

    /// Returns a length of which the token says `said`.
    fn length(&mut self, block: &[u8], said: usize, full: usize) -> Option<usize> {
        if said < full {
            return Some(said);
        }
        let more = match self.byte(block)? {
            LENGTH_ESCAPE => self.wide(block)?,
            byte => byte,
        };
        Some(full + more)
    }

    /// Returns the next byte of the fields, which lie from the block's end on.
    fn byte(&mut self, block: &[u8]) -> Option<usize> {
        if self.field == self.literal {
            return None;
        }
        self.field -= 1;
        Some(usize::from(block[self.field]))
    }

    /// Returns the next two bytes of the fields, of which the first is the higher one.
    fn wide(&mut self, block: &[u8]) -> Option<usize> {
        Some(self.byte(block)? << 8 | self.byte(block)?)
    }
}
