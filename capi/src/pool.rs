//! Pools: small objects, densely packed.
//!
//! The calls of `zfold_pool_*`. All unsafe code reads and writes memory to which the caller points,
//! by the functions of `error.rs`; a pool itself is shared by threads and needs no lock of the
//! caller's.

use std::ffi::c_int;

use ::zfold_pool::process::Local;
use ::zfold_pool::{Handle, HandleError, Pool, PoolOptions};

use crate::error::{Code, Failure, borrow, bytes, close, give, guard, put, put_bytes, there};

/// A pool.
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct zfold_pool(Local<Box<dyn Pool>>);

fn stale(error: HandleError) -> Failure {
    let dead = error == HandleError::Dead;
    Failure::new(if dead { Code::Panic } else { Code::Missing }, error)
}

fn handle(bits: u64) -> Result<Handle, Failure> {
    let bits = std::num::NonZeroU64::new(bits);
    bits.map(Handle::from_bits).ok_or_else(|| Failure::new(Code::Missing, "0 is no handle"))
}

#[unsafe(no_mangle)]
/// # Safety
/// As the header says: `pool` is null or can be written to.
pub unsafe extern "C" fn zfold_pool_open(pool: *mut *mut zfold_pool) -> c_int {
    guard(|| {
        let open = || {
            let opened = ::zfold_pool::create("c", &PoolOptions::default());
            let pool = opened.map_err(|error| Failure::new(Code::System, error))?;
            Ok(zfold_pool(Local::new(pool)))
        };
        // SAFETY: the caller's promise.
        unsafe { give(pool, open) }
    })
}

#[unsafe(no_mangle)]
/// # Safety
/// As the header says: pointers are null or valid for that many bytes.
pub unsafe extern "C" fn zfold_pool_insert(
    pool: *const zfold_pool,
    object: *const u8,
    len: u64,
    to: *mut u64,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let pool = unsafe { borrow(pool) }?.0.get()?;
        // Before the insertion, so that none is lost to a null pointer.
        there(to)?;
        // SAFETY: as above.
        let object = unsafe { bytes(object, len) };
        let inserted = object.and_then(|object| Ok(pool.insert(object)?));
        // Not before: the object may be where its handle is wanted.
        // SAFETY: as above.
        unsafe { put(to, inserted.as_ref().map_or(0, |handle| handle.to_bits().get())) }?;
        inserted.map(drop)
    })
}

#[unsafe(no_mangle)]
/// # Safety
/// As the header says: pointers are null or valid for that many bytes.
pub unsafe extern "C" fn zfold_pool_read(
    pool: *const zfold_pool,
    of: u64,
    object: *mut u8,
    room: u64,
    len: *mut u64,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let pool = unsafe { borrow(pool) }?.0.get()?;
        let found = pool.read(handle(of)?).map_err(stale)?;
        // SAFETY: as above.
        unsafe { put_bytes("object", &found, object, room, len) }
    })
}

#[unsafe(no_mangle)]
/// # Safety
/// As the header says: `pool` is null or open.
pub unsafe extern "C" fn zfold_pool_free(pool: *const zfold_pool, of: u64) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { borrow(pool) }?.0.get()?.free(handle(of)?).map_err(stale)
    })
}

#[unsafe(no_mangle)]
/// # Safety
/// As the header says: `pool` is null or open, `freed` null or can be written to.
pub unsafe extern "C" fn zfold_pool_compact(pool: *const zfold_pool, freed: *mut u64) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let pages = unsafe { borrow(pool) }?.0.get()?.compact(u64::MAX);
        // SAFETY: as above.
        unsafe { put(freed, pages) }
    })
}

#[unsafe(no_mangle)]
/// # Safety
/// `pool` is null or open, and no longer used.
pub unsafe extern "C" fn zfold_pool_close(pool: *mut zfold_pool) {
    // SAFETY: `zfold_pool_open` gave it, and the caller gives it up.
    unsafe { close(pool) }
}
