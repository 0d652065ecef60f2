//! LZ4 blocks through the reference C library, with the compressor state held here.
//!
//! The library is given lengths that are never beyond the slices, and stays within them whatever
//! the bytes are. The state belongs to one context, which one thread uses at a time (`&mut self`);
//! between calls it holds nothing that matters.
//!
//! With a dictionary, a stream is prepared once with its hashes and never changes. For each page a
//! second stream is begun afresh and the prepared one *attached* to it, which sets a pointer:
//! nothing of the dictionary is hashed or copied for a page of up to 4 KiB. For longer pages the
//! library copies the prepared stream, which is cheaper there than to look into two.
//!
//! # Invariants
//!
//! - W1: `stream` is a stream as the library left it after loading `dictionary`, whose bytes do not
//!   move or change. Both live as long as the context.
//! - W2: `state` is as large as the library says of the compressor, and aligned to 8.

use std::fmt;

use lz4_sys::{c_char, c_int, c_void};

use super::{Codec, DecodeError, Dictionary};

/// How far back LZ4 refers, and so how much of a dictionary it can use.
const WINDOW: usize = 64 * 1024;

// Functions that lz4-sys builds but does not declare, with the signatures of lz4.h.
unsafe extern "C" {
    safe fn LZ4_sizeofState() -> c_int;
    fn LZ4_compress_fast_extState(
        state: *mut c_void,
        src: *const c_char,
        dst: *mut c_char,
        src_len: c_int,
        dst_capacity: c_int,
        acceleration: c_int,
    ) -> c_int;
    fn LZ4_initStream(buffer: *mut c_void, len: usize) -> *mut c_void;
    fn LZ4_loadDictSlow(stream: *mut c_void, dictionary: *const c_char, len: c_int) -> c_int;
    fn LZ4_attach_dictionary(stream: *mut c_void, prepared: *const c_void);
    fn LZ4_compress_fast_continue(
        stream: *mut c_void,
        src: *const c_char,
        dst: *mut c_char,
        src_len: c_int,
        dst_capacity: c_int,
        acceleration: c_int,
    ) -> c_int;
    fn LZ4_decompress_safe_usingDict(
        src: *const c_char,
        dst: *mut c_char,
        src_len: c_int,
        dst_capacity: c_int,
        dictionary: *const c_char,
        dictionary_len: c_int,
    ) -> c_int;
}

/// A context of LZ4.
pub(super) struct Lz4 {
    acceleration: c_int,
    /// What the compressor works in (W2).
    state: Box<[u64]>,
    prepared: Option<Prepared>,
}

/// A dictionary, and the stream that holds it (W1).
struct Prepared {
    dictionary: Dictionary,
    stream: Box<[u64]>,
}

impl Lz4 {
    /// Returns a context, of blocks that refer to the dictionary if there is one.
    pub(super) fn new(acceleration: c_int, dictionary: Option<&Dictionary>) -> Self {
        Self { acceleration, state: new_state(), prepared: dictionary.map(Prepared::new) }
    }
}

impl Prepared {
    fn new(dictionary: &Dictionary) -> Self {
        let mut prepared = new_state();
        begin(&mut prepared);
        let bytes = window(dictionary);
        let (stream, start) = (prepared.as_mut_ptr().cast(), bytes.as_ptr().cast());
        // SAFETY: `stream` has just been begun, and `start` is readable for the length passed,
        // which is at most `WINDOW`; the bytes stay there (W1).
        unsafe { LZ4_loadDictSlow(stream, start, c_len(bytes)) };
        Self { dictionary: dictionary.clone(), stream: prepared }
    }

    /// Begins the stream that compresses afresh, so that nothing of the pages before, nor of one
    /// that did not fit, is left, and points it to the prepared one.
    fn begin(&self, state: &mut [u64]) {
        begin(state);
        let (stream, prepared) = (state.as_mut_ptr().cast(), self.stream.as_ptr().cast());
        // SAFETY: `stream` has been begun and `prepared` loaded (W1); the latter stays where it is
        // and is not written while `stream` points to it.
        unsafe { LZ4_attach_dictionary(stream, prepared) };
    }
}

/// Returns memory for a compressor (W2).
fn new_state() -> Box<[u64]> {
    vec![0; (LZ4_sizeofState() as usize).div_ceil(size_of::<u64>())].into()
}

/// Makes `state` an empty stream, whatever it was.
fn begin(state: &mut [u64]) {
    let (stream, len): (*mut c_void, _) = (state.as_mut_ptr().cast(), size_of_val(state));
    // SAFETY: `stream` is writable for `len` bytes; the function checks length and alignment, and
    // any contents are allowed.
    let begun = unsafe { LZ4_initStream(stream, len) };
    assert!(!begun.is_null(), "a stream's memory has the length and alignment it needs (W2)");
}

/// Returns the part of a dictionary that LZ4 can refer to.
fn window(dictionary: &Dictionary) -> &[u8] {
    let bytes = dictionary.bytes();
    &bytes[bytes.len().saturating_sub(WINDOW)..]
}

/// Returns `bytes.len()` as the C library counts, or the most it can count: the library then uses
/// that much of the slice.
fn c_len(bytes: &[u8]) -> c_int {
    c_int::try_from(bytes.len()).unwrap_or(c_int::MAX)
}

impl Codec for Lz4 {
    fn compress(&mut self, page: &[u8], out: &mut [u8]) -> Option<usize> {
        if let Some(prepared) = &self.prepared {
            prepared.begin(&mut self.state);
        }
        let state = self.state.as_mut_ptr().cast();
        let (src, dst) = (page.as_ptr().cast(), out.as_mut_ptr().cast());
        let (len, room) = (c_len(page), c_len(out));
        let written = match self.prepared {
            // SAFETY:
            // - `state` is as large as it must be (W2); this function initialises it itself, so
            //   what it holds does not matter;
            // - `page` is readable and `out` writable for the lengths passed, which `c_len` never
            //   makes longer than the slices;
            // - they do not overlap each other, the state or the dictionary, being `&` and `&mut`.
            None => unsafe {
                LZ4_compress_fast_extState(state, src, dst, len, room, self.acceleration)
            },
            // SAFETY: same as above, but that `state` was begun as a stream, and what is attached
            // to it lives (W1).
            Some(_) => unsafe {
                LZ4_compress_fast_continue(state, src, dst, len, room, self.acceleration)
            },
        };
        // 0 means that the result does not fit, or that the page is too long for the format.
        usize::try_from(written).ok().filter(|&len| len > 0)
    }

    fn decompress(&mut self, bytes: &[u8], page: &mut [u8]) -> Result<(), DecodeError> {
        let dictionary = self.prepared.as_ref().map_or(&[][..], |of| window(&of.dictionary));
        // SAFETY:
        // - `bytes` and `dictionary` are readable and `page` is writable for the lengths passed,
        //   which `c_len` never makes longer than the slices; the function stays within them
        //   whatever `bytes` holds;
        // - `page` overlaps neither, being `&mut`.
        let decoded = unsafe {
            LZ4_decompress_safe_usingDict(
                bytes.as_ptr().cast(),
                page.as_mut_ptr().cast(),
                c_len(bytes),
                c_len(page),
                dictionary.as_ptr().cast(),
                c_len(dictionary),
            )
        };
        // Negative means malformed.
        DecodeError::unless_full(usize::try_from(decoded).map_err(|_| DecodeError)?, page)
    }

    fn working_bytes(&self) -> usize {
        let stream = self.prepared.as_ref().map_or(0, |of| size_of_val(&*of.stream));
        stream + size_of_val(&*self.state)
    }
}

impl fmt::Debug for Lz4 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dictionary = self.prepared.as_ref().map(|of| &of.dictionary);
        let mut debug = f.debug_struct("Lz4");
        debug.field("acceleration", &self.acceleration).field("dictionary", &dictionary);
        debug.finish_non_exhaustive()
    }
}
