//! The fast decoder: copies by sixteen bytes, looks at lengths only where they are long, and reads
//! fields before it knows whether the sequence has them.
//!
//! It decodes sequences as long as there is room for that, and stops *before* the first one for
//! which there is not, or that is not sound; the plain decoder goes on from there and says what is
//! wrong. So nothing is an error here.
//!
//! Of a sequence, with plain/D1 and D2 before it:
//!
//! - F1: `field >= 8`: so many bytes before it are those of a block, which has tokens and a header
//!   of eight bytes together, and `literal`, which is not above `field`, is behind them. The fields
//!   of a sequence are no more: three bytes, two, three.
//! - F2: `literal + 16 <= block.len()` for every load of literals.
//! - F3: `start + 16 <= page.len()`, where `start` is where the match begins; literals end there.
//! - F4: `start + len + 16 <= page.len()` if a match is longer than 16 bytes.
//! - F5: `8 <= offset <= start`, so that a match comes from bytes that are there.

use super::format::{LENGTH_ESCAPE, LITERALS_FULL, MATCH_FULL, MATCH_MIN, OFFSET_MIN};
use super::plain::Cursor;
use super::raw::{load, store};

/// Bytes of literals and of a match that are copied whatever their number.
const COPY: usize = 16;

/// Moves the cursor as far as there is room for haste.
#[inline(always)]
#[expect(clippy::too_many_lines, reason = "one loop, whose state lies in registers")]
pub(super) fn advance(at: &mut Cursor, block: &[u8], page: &mut [u8]) {
    let Some(start_max) = page.len().checked_sub(COPY) else { return };
    let Some(literal_max) = block.len().checked_sub(COPY) else { return };
    if at.literal < 8 {
        return;
    }
    let Cursor { mut token, tokens_end, mut literal, mut field, mut done, .. } = *at;
    let [mut last, mut last_but_one] = at.recent;
    while token < tokens_end {
        // SAFETY: plain/D1: `token < tokens_end <= block.len()`.
        let [bits] = unsafe { load(block, token) };
        let (literal_bits, mode) = (usize::from(bits >> 4 & 3), bits >> 6);
        // Behind the next field of this sequence.
        let mut next = field;
        // One if there is a length, otherwise zero.
        let long = (literal_bits + 1) / (LITERALS_FULL + 1);
        // SAFETY: F1: the first field, if there is one.
        let more = unsafe { byte(block, next) };
        let mut literals = literal_bits + (more & 0_usize.wrapping_sub(long));
        next -= long;
        if literals > COPY {
            if literals == LITERALS_FULL + LENGTH_ESCAPE {
                // SAFETY: F1: two bytes after the first.
                literals = LITERALS_FULL + unsafe { wide(block, next) };
                next -= 2;
            }
            if literal + literals > literal_max || done + literals > start_max {
                break;
            }
            let mut copied = COPY;
            while copied < literals {
                // SAFETY: F2: `literal + copied <= literal_max`, checked above.
                let bytes: [u8; COPY] = unsafe { load(block, literal + copied) };
                // SAFETY: F3: `done + copied < start <= page.len() - 16`, checked above.
                unsafe { store(page, done + copied, bytes) };
                copied += COPY;
            }
        }
        let start = done + literals;

        // SAFETY: F1: after at most three bytes, two.
        let two = unsafe { wide(block, next) };
        let new = if mode & 1 == 0 { two >> 8 << 3 } else { two } + OFFSET_MIN;
        let old = if mode & 1 == 0 { last } else { last_but_one };
        let offset = if mode & 2 == 0 { old } else { new };
        next -= usize::from(mode.max(1) - 1);

        // One branch for what never happens, and what happens at the end.
        if (literal > literal_max)
            | (start > start_max)
            | (offset > start)
            | (literal + literals > next)
        {
            break;
        }
        // SAFETY: F2: checked above.
        let bytes: [u8; COPY] = unsafe { load(block, literal) };
        // SAFETY: F3: `done <= start <= page.len() - 16`.
        unsafe { store(page, done, bytes) };
        let from = start - offset;
        // SAFETY: F5 and F3: `from + 8 <= start`.
        let bytes: [u8; 8] = unsafe { load(page, from) };
        // SAFETY: F3.
        unsafe { store(page, start, bytes) };
        // SAFETY: F5 and F3: `from + 16 <= start + 8`.
        let bytes: [u8; 8] = unsafe { load(page, from + 8) };
        // SAFETY: F3.
        unsafe { store(page, start + 8, bytes) };

        let mut len = MATCH_MIN + (usize::from(bits) & MATCH_FULL);
        if len > COPY {
            if len == MATCH_MIN + MATCH_FULL {
                // SAFETY: F1: after at most five bytes, one.
                let mut more = unsafe { byte(block, next) };
                next -= 1;
                if more == LENGTH_ESCAPE {
                    // SAFETY: F1: after at most six bytes, two.
                    more = unsafe { wide(block, next) };
                    next -= 2;
                }
                len += more;
            }
            if start + len + COPY > page.len() || literal + literals > next {
                break;
            }
            extend(page, start, offset, len);
        }
        last_but_one = if mode == 0 { last_but_one } else { last };
        last = offset;
        token += 1;
        literal += literals;
        field = next;
        done = start + len;
    }
    *at = Cursor { token, tokens_end, literal, field, done, recent: [last, last_but_one] };
}

/// Returns the byte before `next`.
///
/// # Safety
///
/// `1 <= next <= block.len()`.
#[inline(always)]
unsafe fn byte(block: &[u8], next: usize) -> usize {
    // SAFETY: by this function's contract.
    let [byte] = unsafe { load(block, next - 1) };
    byte.into()
}

/// Returns the two bytes before `next` as a number.
///
/// # Safety
///
/// `2 <= next <= block.len()`.
#[inline(always)]
unsafe fn wide(block: &[u8], next: usize) -> usize {
    // SAFETY: by this function's contract.
    u16::from_le_bytes(unsafe { load(block, next - 2) }).into()
}

/// Copies the bytes of a match behind the first sixteen.
///
/// F4 and F5 hold.
#[inline(always)]
fn extend(page: &mut [u8], start: usize, offset: usize, len: usize) {
    let (mut to, end) = (start + COPY, start + len);
    debug_assert!(end + COPY <= page.len() && (OFFSET_MIN..=start).contains(&offset));
    // The next 16, which is nearly always all.
    for _ in 0..2 {
        // SAFETY: F5, and F4: what is read lies before what is written.
        let bytes: [u8; 8] = unsafe { load(page, to - offset) };
        // SAFETY: F4: `to + 8 <= start + 32 < end + 16 <= page.len()`, as `end > start + 16`.
        unsafe { store(page, to, bytes) };
        to += 8;
    }
    if to >= end {
        return;
    }
    if offset == OFFSET_MIN {
        // SAFETY: F5: `start - 8` is a byte of the page, and `start` is not behind its end.
        let word: [u8; 8] = unsafe { load(page, start - OFFSET_MIN) };
        let word = u128::from(u64::from_ne_bytes(word));
        let words = (word << 64 | word).to_ne_bytes();
        while to < end {
            // SAFETY: F4: `to + 16 < end + 16 <= page.len()`.
            unsafe { store(page, to, words) };
            to += COPY;
        }
    } else if offset >= COPY {
        while to < end {
            // SAFETY: F5, and F4: what is read lies before what is written.
            let bytes: [u8; COPY] = unsafe { load(page, to - offset) };
            // SAFETY: F4: `to + 16 < end + 16 <= page.len()`.
            unsafe { store(page, to, bytes) };
            to += COPY;
        }
    } else {
        while to < end {
            // SAFETY: F5, and F4: what is read lies before what is written.
            let bytes: [u8; 8] = unsafe { load(page, to - offset) };
            // SAFETY: F4: `to + 8 < end + 16 <= page.len()`.
            unsafe { store(page, to, bytes) };
            to += 8;
        }
    }
}
