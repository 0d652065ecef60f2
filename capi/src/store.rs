//! Stores: pages of 4096 bytes by number.
//!
//! The calls of `zfold_store_*`. All unsafe code reads and writes memory to which the caller
//! points, by the functions of `error.rs`; a store itself is shared by threads and needs no lock of
//! the caller's.

use std::ffi::{c_char, c_int};

use ::zfold_store::{LoadError, OpenError, Store, StoreError, StoreOptions};
use zfold_pool::process::Local;

use crate::error::{Code, Failure, borrow, bytes, close, give, guard, put, put_sized};

const PAGE: usize = 4096;

/// A store.
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct zfold_store(Local<Store>);

/// `zfold_store_stats` of the header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct zfold_store_stats {
    size: u64,
    stored_pages: u64,
    same_filled_pages: u64,
    compressed_bytes: u64,
    held_bytes: u64,
}

fn stored(error: StoreError) -> Failure {
    let code = match error {
        StoreError::Pool(error) => return error.into(),
        StoreError::Full | StoreError::Incompressible => Code::Full,
        _ => Code::Argument,
    };
    Failure::new(code, error)
}

fn loaded(error: LoadError) -> Failure {
    let code = match error {
        LoadError::Key(_) | LoadError::PageLength { .. } => Code::Argument,
        LoadError::Backing { .. } => Code::System,
        LoadError::Dead => Code::Panic,
        _ => Code::Damaged,
    };
    Failure::new(code, error)
}

fn opened(error: OpenError) -> Failure {
    let code = match error {
        OpenError::Pool(_) | OpenError::SlotTable(_) => Code::System,
        _ => Code::Argument,
    };
    Failure::new(code, error)
}

#[unsafe(no_mangle)]
/// # Safety
/// As the header says: pointers are null or valid, texts end with a zero.
pub unsafe extern "C" fn zfold_store_open(
    keys: u64,
    limit_bytes: u64,
    codec: *const c_char,
    store: *mut *mut zfold_store,
) -> c_int {
    guard(|| {
        let open = || {
            // SAFETY: the caller's promise.
            let codec = unsafe { crate::text::codec(codec) }?;
            let limit = (limit_bytes > 0).then_some(limit_bytes);
            let store = Store::open(&StoreOptions::new(keys, codec).with_limit_bytes(limit));
            Ok(zfold_store(Local::new(store.map_err(opened)?)))
        };
        // SAFETY: the caller's promise.
        unsafe { give(store, open) }
    })
}

#[unsafe(no_mangle)]
/// # Safety
/// As the header says: `page` is null or has 4096 bytes.
pub unsafe extern "C" fn zfold_store_store(
    store: *const zfold_store,
    key: u64,
    page: *const u8,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let store = unsafe { borrow(store) }?.0.get()?;
        // SAFETY: as above.
        let page = unsafe { bytes(page, PAGE as u64) };
        // Not the page before either, where this one is none.
        let page = page.inspect_err(|_| {
            store.invalidate(key);
        })?;
        store.store(key, page).map(drop).map_err(stored)
    })
}

#[unsafe(no_mangle)]
/// # Safety
/// As the header says: `page` is null or has room for 4096 bytes.
pub unsafe extern "C" fn zfold_store_load(
    store: *const zfold_store,
    key: u64,
    page: *mut u8,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let store = unsafe { borrow(store) }?.0.get()?;
        let mut found = [0; PAGE];
        if !store.load(key, &mut found).map_err(loaded)? {
            return Err(Failure::new(Code::Missing, format!("key {key} holds no page")));
        }
        // SAFETY: as above.
        unsafe { put(page.cast::<[u8; PAGE]>(), found) }
    })
}

#[unsafe(no_mangle)]
/// # Safety
/// As the header says: `store` is null or open.
pub unsafe extern "C" fn zfold_store_invalidate(store: *const zfold_store, key: u64) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let store = unsafe { borrow(store) }?.0.get()?;
        if key >= store.slots() {
            let text = format!("key {key} is not below the {} keys of the store", store.slots());
            return Err(Failure::new(Code::Argument, text));
        }
        store.invalidate(key);
        Ok(())
    })
}

#[unsafe(no_mangle)]
/// # Safety
/// As the header says: pointers are null or valid.
pub unsafe extern "C" fn zfold_store_get_stats(
    store: *const zfold_store,
    stats: *mut zfold_store_stats,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let of = unsafe { borrow(store) }?.0.get()?.stats();
        let of = zfold_store_stats {
            size: 0,
            stored_pages: of.stored_pages,
            same_filled_pages: of.same_filled_pages,
            compressed_bytes: of.pool.payload_bytes,
            held_bytes: of.held_bytes(),
        };
        // SAFETY: as above.
        unsafe { put_sized(stats, &of) }
    })
}

#[unsafe(no_mangle)]
/// # Safety
/// `store` is null or open, and no longer used.
pub unsafe extern "C" fn zfold_store_close(store: *mut zfold_store) {
    // SAFETY: `zfold_store_open` gave it, and the caller gives it up.
    unsafe { close(store) }
}
