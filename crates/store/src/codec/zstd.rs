//! Zstandard frames through the reference C library.
//!
//! A frame is stripped of all that the keeper of a page knows anyway: it has no magic number, no
//! content size, no checksum and no dictionary id, which leaves two bytes of header.

use std::fmt;

use zstd_safe::{CCtx, CParameter, DCtx, DParameter, FrameFormat};

use super::{Codec, DecodeError, Dictionary};

/// A compression and a decompression context of the library.
pub(super) struct Zstd {
    level: i32,
    compressor: CCtx<'static>,
    decompressor: DCtx<'static>,
}

impl Zstd {
    /// Returns a context that has compressed a page of `page_len` once, because the library
    /// allocates its tables, and those of a dictionary, at the first page.
    pub(super) fn new(level: i32, page_len: usize, dictionary: Option<&Dictionary>) -> Self {
        let mut context =
            Self { level, compressor: compressor(level), decompressor: decompressor() };
        if let Some(dictionary) = dictionary {
            let content = content(dictionary);
            // Without the magic number, any bytes are a dictionary.
            context.compressor.load_dictionary(content).expect("the library copies a dictionary");
            context.decompressor.load_dictionary(content).expect("the library copies a dictionary");
        }
        context.compress(&vec![0; page_len], &mut [0; 64]);
        context
    }
}

/// Returns the bytes that pages may refer to.
///
/// A dictionary with the magic number begins with tables of symbol frequencies, which pages would
/// have to be coded with. They make pages larger than the tables that each page gets of its own,
/// and those of some processes larger than without a dictionary (docs/design/codecs.md). Without
/// the number, the library takes all of it for bytes to refer to.
fn content(dictionary: &Dictionary) -> &[u8] {
    let mut content = dictionary.bytes();
    while let Some(rest) = content.strip_prefix(&zstd_safe::MAGIC_DICTIONARY.to_le_bytes()) {
        content = rest;
    }
    content
}

fn compressor(level: i32) -> CCtx<'static> {
    let mut compressor = CCtx::create();
    for parameter in [
        CParameter::CompressionLevel(level),
        CParameter::Format(FrameFormat::Magicless),
        CParameter::ContentSizeFlag(false),
        CParameter::ChecksumFlag(false),
        CParameter::DictIdFlag(false),
    ] {
        compressor.set_parameter(parameter).expect("a new context takes a valid parameter");
    }
    compressor
}

fn decompressor() -> DCtx<'static> {
    let mut decompressor = DCtx::create();
    decompressor
        .set_parameter(DParameter::Format(FrameFormat::Magicless))
        .expect("a new context takes a valid parameter");
    decompressor
}

impl Codec for Zstd {
    fn compress(&mut self, page: &[u8], out: &mut [u8]) -> Option<usize> {
        self.compressor.compress2(out, page).ok()
    }

    fn decompress(&mut self, bytes: &[u8], page: &mut [u8]) -> Result<(), DecodeError> {
        let decoded = self.decompressor.decompress(page, bytes).map_err(|_| DecodeError)?;
        DecodeError::unless_full(decoded, page)
    }

    fn working_bytes(&self) -> usize {
        self.compressor.sizeof() + self.decompressor.sizeof()
    }
}

impl fmt::Debug for Zstd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Zstd").field("level", &self.level).finish_non_exhaustive()
    }
}
