//! What tests of several rooms make.

use std::sync::Arc;

use zfold_pool::PoolOptions;
use zfold_store::{CodecKind, Store, StoreOptions};

use crate::link::SpaceId;
use crate::options::page_size;
use crate::spaces::budget::Budget;
use crate::spaces::keys::Stock;
use crate::spaces::managed::Managed;

/// Returns a store before a pool of pages as a run has.
pub(crate) fn store(options: &StoreOptions) -> Store {
    let pool = zfold_pool::create("test", &PoolOptions::default().with_page_size(page_size()));
    Store::new(pool.unwrap(), options).unwrap()
}

/// Returns a budget, and what makes spaces that are charged to it, by their number and process.
pub(crate) fn spaces(limit: u64) -> (Arc<Budget>, impl Fn(u64, i32) -> Managed) {
    let budget = Arc::new(Budget::new(limit, true));
    let stock = Stock::new(Arc::new(store(&StoreOptions::new(16, CodecKind::Lz4.into()))));
    let (to, stock) = (Arc::clone(&budget), Arc::new(stock));
    (budget, move |id, pid| Managed::new(SpaceId(id), pid, &to, &stock))
}
