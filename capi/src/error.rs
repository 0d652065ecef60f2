//! Codes, the text of a thread's last error, and the border that no panic crosses.
//!
//! Every call of the interface that can fail runs in [`guard`]; what it does with pointers of the
//! caller goes through the functions below it. Each of these refuses a null pointer and trusts the
//! rest: the caller promises that a pointer that is not null is as the header requires, and the
//! `unsafe` blocks here rely only on that. The text belongs to the thread: no lock, and no other
//! thread's error.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use zfold_pool::AllocError;
use zfold_pool::process::Forked;

/// The results of a call, except 0 for success; as in the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Code {
    Argument = -1,
    Missing = -2,
    Full = -3,
    Damaged = -4,
    Permission = -5,
    System = -6,
    Buffer = -7,
    Panic = -8,
    Forked = -9,
}

/// A code with its text.
#[derive(Debug)]
pub(crate) struct Failure(Code, String);

impl Failure {
    pub(crate) fn new(code: Code, text: impl Display) -> Self {
        Self(code, text.to_string())
    }
}

impl From<Forked> for Failure {
    fn from(error: Forked) -> Self {
        Self::new(Code::Forked, error)
    }
}

impl From<AllocError> for Failure {
    fn from(error: AllocError) -> Self {
        let code = match error {
            AllocError::ZeroLength | AllocError::TooLong { .. } => Code::Argument,
            AllocError::Dead => Code::Panic,
            _ => Code::System,
        };
        Self::new(code, error)
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

fn note(text: String) {
    let text = CString::new(text.replace('\0', "?")).unwrap_or_default();
    // A thread that is ending no longer reads it.
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
}

/// Runs `call` and returns its code (C1, C2).
pub(crate) fn guard(call: impl FnOnce() -> Result<(), Failure>) -> c_int {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => 0,
        Ok(Err(Failure(code, text))) => {
            note(text);
            code as c_int
        }
        Err(_) => {
            note("the library panicked; its message is on the error output".to_owned());
            Code::Panic as c_int
        }
    }
}

/// Borrows what a pointer points to.
///
/// # Safety
/// The pointer is null, or points to a value that lives during the call.
pub(crate) unsafe fn borrow<'a, T>(pointer: *const T) -> Result<&'a T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::new(Code::Argument, "a pointer is null"))
}

/// Refuses a null pointer.
pub(crate) fn there<T>(pointer: *const T) -> Result<(), Failure> {
    if pointer.is_null() {
        return Err(Failure::new(Code::Argument, "a pointer is null"));
    }
    Ok(())
}

/// Writes through a pointer of the caller, aligned or not.
///
/// # Safety
/// The pointer is null, or may be written to.
pub(crate) unsafe fn put<T>(to: *mut T, value: T) -> Result<(), Failure> {
    there(to)?;
    // SAFETY: the caller's promise.
    unsafe { to.write_unaligned(value) };
    Ok(())
}

/// Gives the caller what `open` makes, behind a pointer; a null one if it fails.
///
/// # Safety
/// The pointer is null, or may be written to.
pub(crate) unsafe fn give<T>(
    to: *mut *mut T,
    open: impl FnOnce() -> Result<T, Failure>,
) -> Result<(), Failure> {
    // Before the opening, so that nothing is lost to a null pointer.
    there(to)?;
    let (given, result) = match open() {
        Ok(value) => (Box::into_raw(Box::new(value)), Ok(())),
        Err(failure) => (std::ptr::null_mut(), Err(failure)),
    };
    // SAFETY: the caller's promise.
    unsafe { put(to, given) }?;
    result
}

/// Drops what `give` gave.
///
/// # Safety
/// The pointer is null, or of [`give`] and no longer used.
pub(crate) unsafe fn close<T>(given: *mut T) {
    if !given.is_null() {
        guard(|| {
            // SAFETY: `give` made it, and the caller gives it up.
            drop(unsafe { Box::from_raw(given) });
            Ok(())
        });
    }
}

/// Copies the bytes of `what` to the caller's buffer, and says how many they are, also where there
/// is no room for them.
///
/// # Safety
/// The pointers are null or may be written to, the buffer for that many bytes.
pub(crate) unsafe fn put_bytes(
    what: &str,
    found: &[u8],
    to: *mut u8,
    room: u64,
    len: *mut u64,
) -> Result<(), Failure> {
    // SAFETY: the caller's promise.
    unsafe { put(len, found.len() as u64) }?;
    if found.len() as u64 > room {
        let text = format!("the {what} has {} bytes, the buffer {room}", found.len());
        return Err(Failure::new(Code::Buffer, text));
    }
    if !found.is_empty() {
        there(to)?;
        // SAFETY: the buffer has room for them, and is the caller's.
        unsafe { found.as_ptr().copy_to_nonoverlapping(to, found.len()) };
    }
    Ok(())
}

/// The bytes at a pointer; none may be at null.
///
/// # Safety
/// That many bytes can be read, and no thread writes them during the call.
pub(crate) unsafe fn bytes<'a>(at: *const u8, len: u64) -> Result<&'a [u8], Failure> {
    let len = length(len)?;
    if len == 0 {
        return Ok(&[]);
    }
    there(at)?;
    // From the caller's pointer: a reference to the first byte would not reach the others.
    // SAFETY: the caller's promise; `length` has seen that an object can be so long.
    Ok(unsafe { std::slice::from_raw_parts(at, len) })
}

/// A length as this system has it.
pub(crate) fn length(len: u64) -> Result<usize, Failure> {
    let fits = usize::try_from(len).ok().filter(|&len| isize::try_from(len).is_ok());
    fits.ok_or_else(|| Failure::new(Code::Argument, format!("{len} bytes are too many")))
}

/// Copies a structure to the caller, as much as the caller knows of it (C3).
///
/// # Safety
/// `to` is null, or points to a structure that begins with its size.
pub(crate) unsafe fn put_sized<T: Copy>(to: *mut T, value: &T) -> Result<(), Failure> {
    there(to)?;
    // SAFETY: the caller's promise; the size comes first, aligned or not.
    let size = unsafe { to.cast::<u64>().read_unaligned() };
    let size_min = size_of::<u64>();
    let size = length(size)?;
    if size < size_min {
        return Err(Failure::new(Code::Argument, "set the structure's size before the call"));
    }
    let len = size.min(size_of::<T>()) - size_min;
    let from = std::ptr::from_ref(value).cast::<u8>().wrapping_add(size_min);
    // SAFETY: `len` bytes behind the size are in both.
    unsafe { from.copy_to_nonoverlapping(to.cast::<u8>().wrapping_add(size_min), len) };
    Ok(())
}

/// Returns the text of the thread's last error, valid until its next one; never null.
#[unsafe(no_mangle)]
pub extern "C" fn zfold_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Returns the library's version.
#[unsafe(no_mangle)]
pub extern "C" fn zfold_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
