//! Names that C programs give.

use std::ffi::{CStr, c_char};

use zfold_store::CodecSpec;

use crate::error::{Code, Failure};

/// Reads a codec's name; null is lz4.
///
/// # Safety
/// The pointer is null, or points to a text that ends with a zero.
pub(crate) unsafe fn codec(name: *const c_char) -> Result<CodecSpec, Failure> {
    let name = if name.is_null() {
        c"lz4"
    } else {
        // SAFETY: the caller's promise.
        unsafe { CStr::from_ptr(name) }
    };
    let name = name.to_string_lossy();
    name.parse().map_err(|error| Failure::new(Code::Argument, format!("{error}")))
}
