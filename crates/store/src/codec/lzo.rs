//! LZO1X streams through lzokay, a Rust library that searches as thoroughly as it is slow.

use std::fmt;

use lzokay::compress::{Dict, compress_no_alloc};
use lzokay::decompress::decompress;

use super::{Codec, DecodeError};

/// The compressor's tables; the decompressor needs none.
pub(super) struct Lzo {
    dict: Box<Dict>,
}

impl Lzo {
    pub(super) fn new() -> Self {
        Self { dict: Dict::new() }
    }
}

impl Codec for Lzo {
    fn compress(&mut self, page: &[u8], out: &mut [u8]) -> Option<usize> {
        compress_no_alloc(page, out, &mut self.dict).ok()
    }

    fn decompress(&mut self, bytes: &[u8], page: &mut [u8]) -> Result<(), DecodeError> {
        let decoded = decompress(bytes, page).map_err(|_| DecodeError)?;
        DecodeError::unless_full(decoded, page)
    }

    fn working_bytes(&self) -> usize {
        size_of_val(&*self.dict)
    }
}

impl fmt::Debug for Lzo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lzo").finish_non_exhaustive()
    }
}
