//! LZ4 blocks through the reference C library, with the compressor state held here.
//!
//! The library is given lengths that are never beyond the slices, and stays within them whatever
//! the bytes are. The state is as large and aligned as it asks for, and belongs to one context,
//! which one thread uses at a time (`&mut self`); between calls it holds nothing that matters.

use std::fmt;

use lz4_sys::{LZ4_decompress_safe, c_char, c_int, c_void};

use super::{Codec, DecodeError};

// Functions that lz4-sys builds but does not declare, with the signatures of lz4.h and lz4hc.h.
unsafe extern "C" {
    safe fn LZ4_sizeofState() -> c_int;
    safe fn LZ4_sizeofStateHC() -> c_int;
    fn LZ4_compress_fast_extState(
        state: *mut c_void,
        src: *const c_char,
        dst: *mut c_char,
        src_len: c_int,
        dst_capacity: c_int,
        acceleration: c_int,
    ) -> c_int;
    fn LZ4_compress_HC_extStateHC(
        state: *mut c_void,
        src: *const c_char,
        dst: *mut c_char,
        src_len: c_int,
        dst_capacity: c_int,
        level: c_int,
    ) -> c_int;
}

/// The common type of the two compressors declared above.
type Compressor =
    unsafe extern "C" fn(*mut c_void, *const c_char, *mut c_char, c_int, c_int, c_int) -> c_int;

/// A context of either LZ4 codec; they differ in the compressor only.
pub(super) struct Lz4 {
    compressor: Compressor,
    level: c_int,
    /// As large as `compressor` needs; `u64` gives the alignment of 8.
    state: Box<[u64]>,
}

impl Lz4 {
    /// Returns a context of the fast compressor.
    pub(super) fn fast(acceleration: i32) -> Self {
        Self::new(LZ4_compress_fast_extState, acceleration, LZ4_sizeofState())
    }

    /// Returns a context of the high-compression compressor. From level 10 on it also allocates
    /// 64 KiB during each call.
    pub(super) fn high(level: i32) -> Self {
        Self::new(LZ4_compress_HC_extStateHC, level, LZ4_sizeofStateHC())
    }

    fn new(compressor: Compressor, level: i32, state_len: c_int) -> Self {
        let words = (state_len as usize).div_ceil(size_of::<u64>());
        Self { compressor, level, state: vec![0; words].into() }
    }
}

/// Returns `bytes.len()` as the C library counts, or the most it can count: the library then uses
/// that much of the slice.
pub(super) fn c_len(bytes: &[u8]) -> c_int {
    c_int::try_from(bytes.len()).unwrap_or(c_int::MAX)
}

impl Codec for Lz4 {
    fn compress(&mut self, page: &[u8], out: &mut [u8]) -> Option<usize> {
        // SAFETY:
        // - `state` is writable, as large as the library says for this compressor and aligned to 8;
        //   both functions initialise it themselves, so what it holds does not matter;
        // - `page` is readable and `out` writable for the lengths passed, which `c_len` never makes
        //   longer than the slices;
        // - the three do not overlap, being two `&mut` and one `&`.
        let written = unsafe {
            (self.compressor)(
                self.state.as_mut_ptr().cast(),
                page.as_ptr().cast(),
                out.as_mut_ptr().cast(),
                c_len(page),
                c_len(out),
                self.level,
            )
        };
        // 0 means that the result does not fit, or that the page is too long for the format.
        usize::try_from(written).ok().filter(|&len| len > 0)
    }

    fn decompress(&mut self, bytes: &[u8], page: &mut [u8]) -> Result<(), DecodeError> {
        // SAFETY:
        // - `bytes` is readable and `page` writable for the lengths passed, which `c_len` never
        //   makes longer than the slices; the function stays within them whatever `bytes` holds;
        // - they do not overlap, being `&` and `&mut`.
        let decoded = unsafe {
            LZ4_decompress_safe(
                bytes.as_ptr().cast(),
                page.as_mut_ptr().cast(),
                c_len(bytes),
                c_len(page),
            )
        };
        // Negative means malformed.
        DecodeError::unless_full(usize::try_from(decoded).map_err(|_| DecodeError)?, page)
    }

    fn working_bytes(&self) -> usize {
        size_of_val(&*self.state)
    }
}

impl fmt::Debug for Lz4 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lz4").field("level", &self.level).finish_non_exhaustive()
    }
}
