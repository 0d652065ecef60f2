//! Dictionaries: bytes that compressed pages may refer to as if they came before the page.
//!
//! A page has little room to repeat itself. A dictionary of what many pages have in common gives it
//! something to refer to from its first byte on. A page compressed with a dictionary needs the same
//! one to be read, so a caller that keeps pages keeps the dictionary, or its [`Dictionary::id`] to
//! find it by.

use std::fmt;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use super::{CodecError, MAX_DICTIONARY_LEN};

/// Bytes shared by all contexts that compress with them; a clone is the same bytes.
///
/// Any bytes serve. Of one in the format of Zstandard, the tables at its beginning are not used as
/// such, but are bytes like all others.
#[derive(Clone)]
pub struct Dictionary(Arc<Inner>);

struct Inner {
    bytes: Box<[u8]>,
    id: u64,
}

impl Dictionary {
    /// Returns a dictionary of `bytes`.
    ///
    /// # Errors
    ///
    /// [`CodecError::DictionaryLen`] if they are none, or more than [`MAX_DICTIONARY_LEN`].
    pub fn new(bytes: Vec<u8>) -> Result<Self, CodecError> {
        check_len(bytes.len())?;
        let id = xxh3_64(&bytes);
        Ok(Self(Arc::new(Inner { bytes: bytes.into(), id })))
    }

    /// Returns a dictionary of at most `max_len` bytes made of what `samples` have in common, by
    /// the trainer of the Zstandard library. It serves every codec that takes dictionaries.
    ///
    /// Samples are best pages like those to come, a hundred times as many bytes as the dictionary
    /// or at least ten times. Copies all samples, and takes about 0.1 s for each MiB of them.
    ///
    /// # Errors
    ///
    /// [`CodecError::DictionaryLen`] as [`new`](Self::new); [`CodecError::Training`] if the samples
    /// are too few or too much alike, or `max_len` is too small for what every trained dictionary
    /// has (less than 256 bytes always is).
    #[cfg(feature = "zstd")]
    pub fn train(samples: &[&[u8]], max_len: usize) -> Result<Self, CodecError> {
        check_len(max_len)?;
        let lens: Vec<usize> = samples.iter().map(|sample| sample.len()).collect();
        // The library looks at eight bytes at once, and assumes at least that many.
        if lens.iter().sum::<usize>() < 8 {
            return Err(CodecError::Training("the samples are too short"));
        }
        let mut bytes = vec![0; max_len];
        let len = zstd_safe::train_from_buffer(&mut bytes[..], &samples.concat(), &lens)
            .map_err(|code| CodecError::Training(zstd_safe::get_error_name(code)))?;
        bytes.truncate(len);
        Self::new(bytes)
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0.bytes
    }

    /// Returns the XXH3-64 of the bytes, the same wherever they come from.
    pub fn id(&self) -> u64 {
        self.0.id
    }
}

fn check_len(len: usize) -> Result<(), CodecError> {
    if (1..=MAX_DICTIONARY_LEN).contains(&len) {
        Ok(())
    } else {
        Err(CodecError::DictionaryLen(len))
    }
}

impl PartialEq for Dictionary {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.bytes() == other.bytes()
    }
}

impl Eq for Dictionary {}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dictionary")
            .field("id", &format_args!("{:016x}", self.id()))
            .field("len", &self.bytes().len())
            .finish()
    }
}
