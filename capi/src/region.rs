//! Regions: memory of which a part is resident.
//!
//! The calls of `zfold_memory_*` and `zfold_region_*`. All unsafe code reads and writes memory to
//! which the caller points, by the functions of `error.rs`. What a program does with the bytes of a
//! region, and from which threads, is its own matter, as with any memory; it gives a region up
//! once.

use std::ffi::{c_char, c_int};

use ::zfold_region::{FaultMode, Heap, HeapPin, Memory, MemoryOptions, RegionError};
use zfold_pool::process::Local;

use crate::error::{Code, Failure, borrow, close, give, guard, length};

/// A region: one block of a heap of its own.
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct zfold_region {
    block: Local<::zfold_region::Block>,
    len: u64,
}

/// Pages that stay.
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct zfold_pin {
    _pin: Local<HeapPin>,
}

fn fail(error: RegionError) -> Failure {
    let code = match error {
        RegionError::NotPermitted(_) => Code::Permission,
        RegionError::Kernel(_)
        | RegionError::System(_)
        | RegionError::Store(_)
        | RegionError::TooManyRegions => Code::System,
        RegionError::StoreFull | RegionError::PinLimit { .. } => Code::Full,
        _ => Code::Argument,
    };
    Failure::new(code, error)
}

#[unsafe(no_mangle)]
/// # Safety
/// As the header says: pointers are null or valid, texts end with a zero.
pub unsafe extern "C" fn zfold_region_new(
    len: u64,
    resident_bytes: u64,
    codec: *const c_char,
    by_threads: c_int,
    region: *mut *mut zfold_region,
) -> c_int {
    guard(|| {
        let open = || {
            // SAFETY: the caller's promise.
            let codec = unsafe { crate::text::codec(codec) }?;
            if len == 0 {
                return Err(fail(RegionError::Empty));
            }
            let faults = if by_threads == 0 { FaultMode::InThread } else { FaultMode::Thread };
            let options = MemoryOptions::new(length(resident_bytes)?)
                .with_capacity(length(len)?)
                .with_codec(codec)
                .with_faults(faults);
            let heap = Heap::new(&Memory::new(&options).map_err(fail)?);
            let block = heap.alloc(length(len)?).map_err(fail)?;
            Ok(zfold_region { block: Local::new(block), len })
        };
        // SAFETY: the caller's promise.
        unsafe { give(region, open) }
    })
}

#[unsafe(no_mangle)]
/// # Safety
/// As the header says: `region` is null or of `zfold_region_new`.
pub unsafe extern "C" fn zfold_region_pointer(region: *const zfold_region) -> *mut u8 {
    let mut pointer = std::ptr::null_mut();
    guard(|| {
        // SAFETY: the caller's promise.
        pointer = unsafe { borrow(region) }?.block.get()?.as_ptr();
        Ok(())
    });
    pointer
}

/// The heap of a region, and the address of a range there.
fn range(region: &zfold_region, offset: u64, len: u64) -> Result<(&Heap, usize, usize), Failure> {
    let block = region.block.get()?;
    let end = offset.checked_add(len).filter(|&end| end <= region.len);
    let text = || format!("{offset} and {len} bytes from there are not in {}", region.len);
    end.ok_or_else(|| Failure::new(Code::Argument, text()))?;
    Ok((block.heap(), block.as_ptr().addr() + length(offset)?, length(len)?))
}

#[unsafe(no_mangle)]
/// # Safety
/// As the header says: pointers are null or valid.
pub unsafe extern "C" fn zfold_region_pin(
    region: *const zfold_region,
    offset: u64,
    len: u64,
    pin: *mut *mut zfold_pin,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let region = unsafe { borrow(region) }?;
        let open = || {
            let (heap, address, len) = range(region, offset, len)?;
            let pinned = heap.pin(address, len).map_err(fail)?;
            Ok(zfold_pin { _pin: Local::new(pinned) })
        };
        // SAFETY: as above.
        unsafe { give(pin, open) }
    })
}

#[unsafe(no_mangle)]
/// # Safety
/// `pin` is null or of `zfold_region_pin`, and no longer used.
pub unsafe extern "C" fn zfold_pin_release(pin: *mut zfold_pin) {
    // SAFETY: `zfold_region_pin` gave it, and the caller gives it up.
    unsafe { close(pin) }
}

/// Has a heap do something with a part of a region.
///
/// # Safety
/// `region` is null or of `zfold_region_new`.
unsafe fn of_part(
    region: *const zfold_region,
    offset: u64,
    len: u64,
    act: fn(&Heap, usize, usize) -> Result<(), RegionError>,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let region = unsafe { borrow(region) }?;
        let (heap, address, len) = range(region, offset, len)?;
        act(heap, address, len).map_err(fail)
    })
}

#[unsafe(no_mangle)]
/// # Safety
/// As the header says: `region` is null or of `zfold_region_new`.
pub unsafe extern "C" fn zfold_region_pageout(
    region: *const zfold_region,
    offset: u64,
    len: u64,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { of_part(region, offset, len, Heap::pageout) }
}

#[unsafe(no_mangle)]
/// # Safety
/// As the header says: `region` is null or of `zfold_region_new`.
pub unsafe extern "C" fn zfold_region_prefetch(
    region: *const zfold_region,
    offset: u64,
    len: u64,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { of_part(region, offset, len, Heap::prefetch) }
}

#[unsafe(no_mangle)]
/// # Safety
/// `region` is null or of `zfold_region_new`, and neither it nor its memory is used any longer.
pub unsafe extern "C" fn zfold_region_free(region: *mut zfold_region) {
    // SAFETY: `zfold_region_new` gave it, and the caller gives it up.
    unsafe { close(region) }
}
