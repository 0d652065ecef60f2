//! LZ4 blocks that refer to a dictionary, through the streaming functions of the C library.
//!
//! A stream is prepared once with the hashes of the dictionary and never changes. For each page a
//! second stream is begun afresh and the prepared one *attached* to it, which sets a pointer:
//! nothing of the dictionary is hashed or copied for a page of up to 4 KiB. For longer pages the
//! library copies the prepared stream, which is cheaper there than to look into two.
//!
//! # Invariants
//!
//! - W1: `prepared` is a stream as the library left it after loading `dictionary`, whose bytes do
//!   not move or change. Both live as long as the context.
//! - W2: `state` is as large as the library says of the kind of stream, and aligned to 8.

use std::fmt;

use lz4_sys::{c_char, c_int, c_void};

use super::lz4::c_len;
use super::{Codec, DecodeError, Dictionary};

/// How far back LZ4 refers, and so how much of a dictionary it can use.
const WINDOW: usize = 64 * 1024;

// Functions that lz4-sys builds but does not declare, with the signatures of lz4.h and lz4hc.h.
unsafe extern "C" {
    safe fn LZ4_sizeofState() -> c_int;
    safe fn LZ4_sizeofStateHC() -> c_int;
    fn LZ4_initStream(buffer: *mut c_void, len: usize) -> *mut c_void;
    fn LZ4_initStreamHC(buffer: *mut c_void, len: usize) -> *mut c_void;
    fn LZ4_resetStreamHC_fast(stream: *mut c_void, level: c_int);
    fn LZ4_loadDictSlow(stream: *mut c_void, dictionary: *const c_char, len: c_int) -> c_int;
    fn LZ4_loadDictHC(stream: *mut c_void, dictionary: *const c_char, len: c_int) -> c_int;
    fn LZ4_attach_dictionary(stream: *mut c_void, prepared: *const c_void);
    fn LZ4_attach_HC_dictionary(stream: *mut c_void, prepared: *const c_void);
    fn LZ4_compress_fast_continue(
        stream: *mut c_void,
        src: *const c_char,
        dst: *mut c_char,
        src_len: c_int,
        dst_capacity: c_int,
        acceleration: c_int,
    ) -> c_int;
    fn LZ4_compress_HC_continue(
        stream: *mut c_void,
        src: *const c_char,
        dst: *mut c_char,
        src_len: c_int,
        dst_capacity: c_int,
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

/// Which of the two compressors, and how thoroughly it searches.
#[derive(Clone, Copy, Debug)]
enum Search {
    /// With this acceleration.
    Fast(c_int),
    /// At this level.
    High(c_int),
}

/// A context of either LZ4 codec with a dictionary.
pub(super) struct Lz4Dictionary {
    search: Search,
    dictionary: Dictionary,
    /// The stream that holds the dictionary (W1).
    prepared: Box<[u64]>,
    /// The stream that compresses a page; what it holds between pages does not matter (W2).
    state: Box<[u64]>,
}

impl Lz4Dictionary {
    /// Returns a context of the fast compressor.
    pub(super) fn fast(acceleration: i32, dictionary: &Dictionary) -> Self {
        Self::new(Search::Fast(acceleration), dictionary)
    }

    /// Returns a context of the high-compression compressor.
    pub(super) fn high(level: i32, dictionary: &Dictionary) -> Self {
        Self::new(Search::High(level), dictionary)
    }

    fn new(search: Search, dictionary: &Dictionary) -> Self {
        let mut prepared = search.new_state();
        search.begin(&mut prepared);
        let bytes = window(dictionary);
        let (stream, start) = (prepared.as_mut_ptr().cast(), bytes.as_ptr().cast());
        match search {
            // SAFETY: `stream` has just been begun as one of this kind, and `start` is readable for
            // the length passed, which is at most `WINDOW`; the bytes stay there (W1).
            Search::Fast(_) => unsafe { LZ4_loadDictSlow(stream, start, c_len(bytes)) },
            // SAFETY: same as above.
            Search::High(_) => unsafe { LZ4_loadDictHC(stream, start, c_len(bytes)) },
        };
        Self { search, dictionary: dictionary.clone(), prepared, state: search.new_state() }
    }

    /// Points the stream that compresses to the prepared one.
    fn attach(&mut self) {
        let (stream, prepared) = (self.state.as_mut_ptr().cast(), self.prepared.as_ptr().cast());
        match self.search {
            // SAFETY: `stream` has been begun and `prepared` loaded (W1), both as this kind; the
            // latter stays where it is and is not written while `stream` points to it.
            Search::Fast(_) => unsafe { LZ4_attach_dictionary(stream, prepared) },
            // SAFETY: same as above.
            Search::High(_) => unsafe { LZ4_attach_HC_dictionary(stream, prepared) },
        }
    }
}

impl Search {
    /// Returns memory for a stream of this kind (W2).
    fn new_state(self) -> Box<[u64]> {
        let len = match self {
            Self::Fast(_) => LZ4_sizeofState(),
            Self::High(_) => LZ4_sizeofStateHC(),
        };
        vec![0; (len as usize).div_ceil(size_of::<u64>())].into()
    }

    /// Makes `state` an empty stream, whatever it was.
    fn begin(self, state: &mut [u64]) {
        let (stream, len): (*mut c_void, _) = (state.as_mut_ptr().cast(), size_of_val(state));
        let begun = match self {
            // SAFETY: `stream` is writable for `len` bytes; the function checks length and
            // alignment, and any contents are allowed.
            Self::Fast(_) => unsafe { LZ4_initStream(stream, len) },
            // SAFETY: same as above.
            Self::High(_) => unsafe { LZ4_initStreamHC(stream, len) },
        };
        assert!(!begun.is_null(), "a stream's memory has the length and alignment it needs (W2)");
        if let Self::High(level) = self {
            // SAFETY: `stream` is a stream of this kind since the call above.
            unsafe { LZ4_resetStreamHC_fast(stream, level) };
        }
    }
}

/// Returns the part of a dictionary that LZ4 can refer to.
fn window(dictionary: &Dictionary) -> &[u8] {
    let bytes = dictionary.bytes();
    &bytes[bytes.len().saturating_sub(WINDOW)..]
}

impl Codec for Lz4Dictionary {
    fn compress(&mut self, page: &[u8], out: &mut [u8]) -> Option<usize> {
        // Begun afresh, so that nothing of the pages before, nor of one that did not fit, is left.
        self.search.begin(&mut self.state);
        self.attach();
        let stream = self.state.as_mut_ptr().cast();
        let (src, dst) = (page.as_ptr().cast(), out.as_mut_ptr().cast());
        let (src_len, capacity) = (c_len(page), c_len(out));
        let written = match self.search {
            // SAFETY:
            // - `stream` was begun as one of this kind, and what is attached to it lives (W1);
            // - `page` is readable and `out` writable for the lengths passed, which `c_len` never
            //   makes longer than the slices;
            // - they do not overlap each other, the stream or the dictionary, being `&` and `&mut`.
            Search::Fast(acceleration) => unsafe {
                LZ4_compress_fast_continue(stream, src, dst, src_len, capacity, acceleration)
            },
            // SAFETY: same as above.
            Search::High(_) => unsafe {
                LZ4_compress_HC_continue(stream, src, dst, src_len, capacity)
            },
        };
        // 0 means that the result does not fit, or that the page is too long for the format.
        usize::try_from(written).ok().filter(|&len| len > 0)
    }

    fn decompress(&mut self, bytes: &[u8], page: &mut [u8]) -> Result<(), DecodeError> {
        let dictionary = window(&self.dictionary);
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
        size_of_val(&*self.prepared) + size_of_val(&*self.state)
    }
}

impl fmt::Debug for Lz4Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lz4Dictionary")
            .field("search", &self.search)
            .field("dictionary", &self.dictionary)
            .finish_non_exhaustive()
    }
}
