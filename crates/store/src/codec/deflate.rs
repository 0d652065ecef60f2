//! Raw DEFLATE streams through libdeflate, which is made for whole buffers.

use std::cell::Cell;
use std::ffi::c_void;
use std::fmt;

use libdeflate_sys::{
    libdeflate_alloc_compressor_ex, libdeflate_alloc_decompressor_ex, libdeflate_free_compressor,
    libdeflate_free_decompressor, libdeflate_options,
};
use libdeflater::{CompressionLvl, Compressor, Decompressor};

use super::{Codec, DecodeError};

/// A compressor and a decompressor of the library.
pub(super) struct Deflate {
    level: i32,
    compressor: Compressor,
    decompressor: Decompressor,
    working_bytes: usize,
}

impl Deflate {
    pub(super) fn new(level: i32) -> Self {
        let compression_level = CompressionLvl::new(level).expect("the level is within the range");
        Self {
            level,
            compressor: Compressor::new(compression_level),
            decompressor: Decompressor::new(),
            working_bytes: allocated_bytes(level),
        }
    }
}

impl Codec for Deflate {
    fn compress(&mut self, page: &[u8], out: &mut [u8]) -> Option<usize> {
        self.compressor.deflate_compress(page, out).ok()
    }

    fn decompress(&mut self, bytes: &[u8], page: &mut [u8]) -> Result<(), DecodeError> {
        let decoded = self.decompressor.deflate_decompress(bytes, page).map_err(|_| DecodeError)?;
        DecodeError::unless_full(decoded, page)
    }

    fn working_bytes(&self) -> usize {
        self.working_bytes
    }
}

impl fmt::Debug for Deflate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deflate").field("level", &self.level).finish_non_exhaustive()
    }
}

thread_local! {
    /// The bytes this thread has asked of [`counting_malloc`].
    static REQUESTED: Cell<usize> = const { Cell::new(0) };
}

/// Is `malloc`, and counts.
extern "C" fn counting_malloc(size: usize) -> *mut c_void {
    REQUESTED.set(REQUESTED.get() + size);
    // SAFETY: malloc takes any size and has no other demand.
    unsafe { libc::malloc(size) }
}

/// Returns what the library allocates for a compressor at `level` and a decompressor.
///
/// The library does not report the size of either, so this creates and frees one of each with an
/// allocator that counts.
fn allocated_bytes(level: i32) -> usize {
    let options = libdeflate_options {
        sizeof_options: size_of::<libdeflate_options>(),
        malloc_func: Some(counting_malloc),
        free_func: Some(libc::free),
    };
    REQUESTED.set(0);
    // SAFETY: `options` is valid for the call and holds its own size, and its `free_func` frees
    // what its `malloc_func` returns. Any level is allowed.
    let compressor = unsafe { libdeflate_alloc_compressor_ex(level, &options) };
    // SAFETY: `compressor` is null, which is allowed, or was just allocated; it is not used again.
    unsafe { libdeflate_free_compressor(compressor) };
    // SAFETY: `options` is valid as above.
    let decompressor = unsafe { libdeflate_alloc_decompressor_ex(&options) };
    // SAFETY: `decompressor` is null or was just allocated, and is not used again.
    unsafe { libdeflate_free_decompressor(decompressor) };
    REQUESTED.get()
}
