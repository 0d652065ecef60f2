//! Caches: values of any length by keys of bytes.
//!
//! The calls of `zfold_cache_*`. All unsafe code reads and writes memory to which the caller
//! points, by the functions of `error.rs`; a cache itself is shared by threads and needs no lock of
//! the caller's.

use std::ffi::{c_char, c_int};

use zfold_pool::process::Local;
use zfold_store::{Cache, CacheError, CacheOptions};

use crate::error::{Code, Failure, borrow, bytes, close, give, guard, put_bytes, put_sized};

/// A cache.
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct zfold_cache(Local<Cache>);

/// `zfold_cache_stats` of the header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct zfold_cache_stats {
    size: u64,
    limit_bytes: u64,
    held_bytes: u64,
    value_bytes: u64,
    values: u64,
    hits_total: u64,
    misses_total: u64,
    evictions_total: u64,
}

fn fail(error: CacheError) -> Failure {
    let code = match error {
        CacheError::Pool(error) => return error.into(),
        CacheError::TooLarge { .. } => Code::Full,
        CacheError::NoMemory { .. } => Code::System,
        CacheError::Dead => Code::Panic,
        _ => Code::Damaged,
    };
    Failure::new(code, error)
}

#[unsafe(no_mangle)]
/// # Safety
/// As the header says: pointers are null or valid, texts end with a zero.
pub unsafe extern "C" fn zfold_cache_open(
    limit_bytes: u64,
    codec: *const c_char,
    cache: *mut *mut zfold_cache,
) -> c_int {
    guard(|| {
        let open = || {
            // SAFETY: the caller's promise.
            let codec = unsafe { crate::text::codec(codec) }?;
            let opened = Cache::open(&CacheOptions::new(limit_bytes).with_codec(codec));
            let cache = opened.map_err(|error| Failure::new(Code::System, error))?;
            Ok(zfold_cache(Local::new(cache)))
        };
        // SAFETY: the caller's promise.
        unsafe { give(cache, open) }
    })
}

#[unsafe(no_mangle)]
/// # Safety
/// As the header says: pointers are null or valid for that many bytes.
pub unsafe extern "C" fn zfold_cache_insert(
    cache: *const zfold_cache,
    key: *const u8,
    key_len: u64,
    value: *const u8,
    value_len: u64,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let cache = unsafe { borrow(cache) }?.0.get()?;
        // SAFETY: as above.
        let key = unsafe { bytes(key, key_len) }?;
        // SAFETY: as above.
        let value = unsafe { bytes(value, value_len) };
        // Not the value before either, where this one is none.
        let value = value.inspect_err(|_| {
            cache.remove(key);
        })?;
        cache.insert(key, value).map_err(fail)
    })
}

#[unsafe(no_mangle)]
/// # Safety
/// As the header says: pointers are null or valid for that many bytes.
pub unsafe extern "C" fn zfold_cache_get(
    cache: *const zfold_cache,
    key: *const u8,
    key_len: u64,
    value: *mut u8,
    value_room: u64,
    value_len: *mut u64,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let cache = unsafe { borrow(cache) }?.0.get()?;
        // SAFETY: as above.
        let key = unsafe { bytes(key, key_len) }?;
        let found = cache.get(key).map_err(fail)?;
        let found = found.ok_or_else(|| Failure::new(Code::Missing, "the key has no value"))?;
        // SAFETY: as above.
        unsafe { put_bytes("value", &found, value, value_room, value_len) }
    })
}

#[unsafe(no_mangle)]
/// # Safety
/// As the header says: pointers are null or valid for that many bytes.
pub unsafe extern "C" fn zfold_cache_remove(
    cache: *const zfold_cache,
    key: *const u8,
    key_len: u64,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let cache = unsafe { borrow(cache) }?.0.get()?;
        // SAFETY: as above.
        match cache.remove(unsafe { bytes(key, key_len) }?) {
            true => Ok(()),
            false => Err(Failure::new(Code::Missing, "the key has no value")),
        }
    })
}

#[unsafe(no_mangle)]
/// # Safety
/// As the header says: pointers are null or valid.
pub unsafe extern "C" fn zfold_cache_get_stats(
    cache: *const zfold_cache,
    stats: *mut zfold_cache_stats,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let cache = unsafe { borrow(cache) }?.0.get()?;
        let of = cache.stats();
        let of = zfold_cache_stats {
            size: 0,
            limit_bytes: of.limit_bytes,
            held_bytes: of.held_bytes,
            value_bytes: of.value_bytes,
            values: of.values,
            hits_total: of.hits_total,
            misses_total: of.misses_total,
            evictions_total: of.evictions_total,
        };
        // SAFETY: as above.
        unsafe { put_sized(stats, &of) }
    })
}

#[unsafe(no_mangle)]
/// # Safety
/// `cache` is null or open, and no longer used.
pub unsafe extern "C" fn zfold_cache_close(cache: *mut zfold_cache) {
    // SAFETY: `zfold_cache_open` gave it, and the caller gives it up.
    unsafe { close(cache) }
}
