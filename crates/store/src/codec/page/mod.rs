//! The page codec: a format for pages of memory, which docs/design/page-format.md specifies.
//!
//! Memory is made of words and of structures that repeat: most matches lie a multiple of eight
//! bytes back, and many as far back as the match before. LZ4 spends two bytes on each such
//! distance; here it takes none or one. A block has three streams, so that a decoder knows where to
//! read next without waiting for what it has read:
//!
//! ```text
//!   | header | tokens -> | literals -> | <- fields |
//! ```
//!
//! | file | holds |
//! |:--|:--|
//! | `format` | the numbers of the format, tokens, headers |
//! | `plain` | the decoder to read: safe, slow, the judge of the other |
//! | `fast` | the decoder in use |
//! | `streams` | how a block is written |
//! | `quick`, `deep` | the two encoders |
//! | `shuffle` | orders of a page's bytes |
//! | `raw` | loads and stores without a look at bounds |

mod deep;
mod fast;
mod format;
mod plain;
mod quick;
mod raw;
mod shuffle;
mod streams;

use std::fmt;

use super::{Codec, DecodeError};
use deep::Deep;
use format::PAGE_LEN_MAX;
use plain::Cursor;
use quick::Quick;
use shuffle::Order;
use streams::Streams;

/// The levels.
pub(super) const QUICK: i32 = 1;
pub(super) const DEEP: i32 = 2;

/// A context of the page codec.
pub(super) struct Page {
    quick: Quick,
    deep: Option<Deep>,
    streams: Streams,
    /// A page in another order than its own.
    shuffled: Vec<u8>,
}

impl Page {
    pub(super) fn new(level: i32, page_len: usize) -> Self {
        let len = page_len.min(PAGE_LEN_MAX);
        Self {
            quick: Quick::new(),
            deep: (level == DEEP).then(|| Deep::new(len)),
            streams: Streams::new(len),
            shuffled: vec![0; len],
        }
    }
}

impl Codec for Page {
    fn compress(&mut self, page: &[u8], out: &mut [u8]) -> Option<usize> {
        if page.len() > PAGE_LEN_MAX {
            return None;
        }
        let Self { quick, deep, streams, shuffled } = self;
        let Some(deep) = deep else {
            quick.encode(page, streams);
            return streams.finish(Order::Plain, page.len(), out);
        };
        let order = best_order(quick, streams, page, shuffled);
        let ordered = if order == Order::Plain { page } else { &shuffled[..] };
        deep.encode(ordered, streams);
        streams.finish(order, page.len(), out)
    }

    fn decompress(&mut self, bytes: &[u8], page: &mut [u8]) -> Result<(), DecodeError> {
        let (cursor, order) = Cursor::new(bytes, page.len())?;
        if order == Order::Plain {
            return decode(cursor, bytes, page);
        }
        self.shuffled.resize(page.len(), 0);
        decode(cursor, bytes, &mut self.shuffled)?;
        order.unshuffle(&self.shuffled, page);
        Ok(())
    }

    fn working_bytes(&self) -> usize {
        let deep = self.deep.as_ref().map_or(0, Deep::working_bytes);
        self.quick.working_bytes() + deep + self.streams.working_bytes() + self.shuffled.capacity()
    }
}

/// Decodes all of a block behind its header.
fn decode(mut cursor: Cursor, block: &[u8], page: &mut [u8]) -> Result<(), DecodeError> {
    fast::advance(&mut cursor, block, page);
    cursor.finish(block, page)
}

/// Decodes a block of the codec `page` by the plain decoder alone. The codec itself must give the
/// same page, or an error as well; tests and the fuzzer hold it to that.
///
/// # Errors
///
/// As [`Codec::decompress`].
pub fn reference_decode(block: &[u8], page: &mut [u8]) -> Result<(), DecodeError> {
    let (cursor, order) = Cursor::new(block, page.len())?;
    if order == Order::Plain {
        return cursor.finish(block, page);
    }
    let mut shuffled = vec![0; page.len()];
    cursor.finish(block, &mut shuffled)?;
    order.unshuffle_plainly(&shuffled, page);
    Ok(())
}

/// Returns the order in which the quick encoder makes the shortest block, and leaves the page so in
/// `shuffled` unless it is plain.
fn best_order(
    quick: &mut Quick,
    streams: &mut Streams,
    page: &[u8],
    shuffled: &mut Vec<u8>,
) -> Order {
    let mut len_of = |bytes: &[u8]| {
        quick.encode(bytes, streams);
        streams.block_len(page.len())
    };
    let plain = len_of(page);
    // What is not much shorter is not worth the time of putting it back in order.
    let (mut best, mut least) = (Order::Plain, plain - plain / SHUFFLE_GAIN);
    for order in [Order::Words4, Order::Words8] {
        if !order.suits(page.len()) {
            continue;
        }
        shuffled.resize(page.len(), 0);
        order.shuffle(page, shuffled);
        let len = len_of(shuffled);
        if len < least {
            (best, least) = (order, len);
        }
    }
    if best == Order::Words4 {
        best.shuffle(page, shuffled);
    }
    best
}

/// An order is taken if it makes a page shorter by this part.
const SHUFFLE_GAIN: usize = 16;

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").field("deep", &self.deep.is_some()).finish_non_exhaustive()
    }
}
