//! Loads and stores of a fixed width, whose bounds only debug builds check.

/// Returns the `N` bytes of `bytes` from `at` on.
///
/// # Safety
///
/// `at + N` is at most `bytes.len()`.
#[inline(always)]
pub(super) unsafe fn load<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    debug_assert!(bytes.len() >= N && at <= bytes.len() - N, "{at} + {N} of {}", bytes.len());
    // SAFETY: `at` lies within the slice, by this function's contract.
    let from = unsafe { bytes.as_ptr().add(at) };
    // SAFETY: so do the `N` bytes from there on, by the same contract, and any bytes are a value of
    // an array of bytes, whose alignment is 1.
    unsafe { from.cast::<[u8; N]>().read() }
}

/// Puts `value` into `bytes` from `at` on.
///
/// # Safety
///
/// `at + N` is at most `bytes.len()`.
#[inline(always)]
pub(super) unsafe fn store<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    debug_assert!(bytes.len() >= N && at <= bytes.len() - N, "{at} + {N} of {}", bytes.len());
    // SAFETY: `at` lies within the slice, by this function's contract.
    let to = unsafe { bytes.as_mut_ptr().add(at) };
    // SAFETY: so do the `N` bytes from there on, by the same contract; the alignment is 1.
    unsafe { to.cast::<[u8; N]>().write(value) }
}
