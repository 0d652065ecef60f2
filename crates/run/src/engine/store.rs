//! Where pages go.

use std::io;
use std::sync::Arc;

use zfold_pool::PoolOptions;
use zfold_store::{CodecKind, Store, StoreOptions};

use crate::options::page_size;

/// Keys of a store that is made here: 256 GiB of pages of 4 KiB.
pub(crate) const KEYS: u64 = 1 << 26;

/// Returns this store, or a store of fit and LZ4 in memory without a limit.
///
/// # Errors
/// It cannot be made, or its pages have another size.
pub(super) fn prepared(store: Option<Arc<Store>>) -> io::Result<Arc<Store>> {
    let store = match store {
        Some(store) => store,
        None => Arc::new(default()?),
    };
    if store.stats().pool.page_size != page_size() {
        return Err(io::Error::other(format!(
            "the pages of a run have {}: use a pool of such",
            page_size()
        )));
    }
    // A refused page ends the program, so a store that has reached its limit takes pages again as
    // soon as dropped copies make room.
    let mut tunables = store.tunables();
    tunables.accept_percent = 100;
    store.tune(&tunables).map_err(io::Error::other)?;
    Ok(store)
}

fn default() -> io::Result<Store> {
    let pool = zfold_pool::create("run", &PoolOptions::default().with_page_size(page_size()));
    let pool = pool.map_err(io::Error::other)?;
    Store::new(pool, &StoreOptions::new(KEYS, CodecKind::Lz4.into())).map_err(io::Error::other)
}
