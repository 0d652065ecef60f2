//! The contract of every codec: compress a page, decompress it, say what memory it holds.

use std::fmt;

use thiserror::Error;

/// A codec context: the working memory of one thread.
///
/// The output of a context depends only on the page and the dictionary, never on earlier pages, and
/// every context of the same codec and dictionary can read it, whatever its level. The page is as
/// long as the context was made for; any other length that is not 0 works as well, but may grow the
/// working memory.
pub trait Codec: Send + fmt::Debug {
    /// Compresses `page` into the front of `out` and returns the compressed length.
    ///
    /// Returns `None`, with the contents of `out` unspecified, if the result does not fit; some
    /// libraries need a few bytes more than the result itself. Give an `out` shorter than the page
    /// to have an incompressible page refused.
    fn compress(&mut self, page: &[u8], out: &mut [u8]) -> Option<usize>;

    /// Decompresses `bytes`, one compressed page and nothing else, so that it fills `page`.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if `bytes` is malformed or decodes to any other length than that of
    /// `page`. The contents of `page` are then unspecified.
    fn decompress(&mut self, bytes: &[u8], page: &mut [u8]) -> Result<(), DecodeError>;

    /// Returns the bytes of working memory this context holds between calls, by the account of the
    /// library itself.
    fn working_bytes(&self) -> usize;
}

/// Compressed bytes are malformed or do not decode to exactly one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("compressed bytes do not decode to one page")]
#[non_exhaustive]
pub struct DecodeError;

impl DecodeError {
    /// Returns `Ok` if a decoder that reported `decoded` bytes filled `page`.
    pub(super) fn unless_full(decoded: usize, page: &[u8]) -> Result<(), Self> {
        if decoded == page.len() { Ok(()) } else { Err(Self) }
    }
}
