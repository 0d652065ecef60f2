//! Stores over a backing that fails on demand, and pages for them.

use std::sync::Arc;

use zfold_pool::{PoolOptions, create};
use zfold_store::backing::{Backing, Faults, FaultyBacking, MemoryBacking};
use zfold_store::conformance::page;
use zfold_store::{BackingOptions, CodecKind, LoadError, Store, StoreOptions};

pub(crate) type Faulty = FaultyBacking<MemoryBacking>;

pub(crate) fn faulty(len: usize) -> Arc<Faulty> {
    Arc::new(FaultyBacking::new(MemoryBacking::new(len), Faults::default(), 1))
}

pub(crate) fn store_with(backing: &Arc<Faulty>, change: impl Fn(&mut StoreOptions)) -> Store {
    let mut options = StoreOptions::new(100_000, CodecKind::Lz4.into());
    let backing = Arc::clone(backing) as Arc<dyn Backing>;
    options.backing = Some(BackingOptions::new(backing));
    change(&mut options);
    Store::new(create("store", &PoolOptions::default()).unwrap(), &options).unwrap()
}

/// A page that compresses to about a third.
pub(crate) fn good(n: u64) -> Vec<u8> {
    page((n as u32) << 3 | 2, 4096)
}

pub(crate) fn load(store: &Store, key: u64) -> Result<Vec<u8>, LoadError> {
    let mut buffer = vec![0; store.page_len()];
    store.load(key, &mut buffer).map(|found| if found { buffer } else { Vec::new() })
}
