//! Loading without the calling thread's own context: for callers that must not allocate or touch
//! thread-local storage that does, such as a signal handler.

use std::sync::atomic::Ordering;

use crate::entry::Flag;
use crate::error::LoadError;
use crate::pages::contexts::Loader;
use crate::store::Store;

impl Store {
    /// Returns what [`load_with`](Self::load_with) needs: a context of each codec.
    ///
    /// # Panics
    /// Never: the codecs were tried when the store was made.
    #[must_use]
    pub fn loader(&self) -> Loader {
        self.pages.contexts.loader()
    }

    /// Loads the page under `key` into `page` as [`load`](Self::load) does. For a page in memory
    /// it allocates nothing, uses no thread-local storage and takes no lock but that of the
    /// key's slot, so that a signal handler may call it, if the code that it interrupted is not
    /// inside this store. A page on the backing file is loaded as by `load`.
    ///
    /// # Errors
    /// [`LoadError`]. The entry stays; `page` may have been written to.
    pub fn load_with(
        &self,
        loader: &mut Loader,
        key: u64,
        page: &mut [u8],
    ) -> Result<bool, LoadError> {
        self.check_load(key, page)?;
        let Some(mut slot) = self.slots.lock_present(key) else { return Ok(false) };
        let entry = slot.entry();
        if entry.state.has(Flag::Backed) {
            drop(slot);
            return self.load(key, page);
        }
        slot.set_state(entry.state.used(self.second()));
        self.pages.read(Some(loader), key, entry, page)?;
        // Relaxed: a counter.
        self.pages.counts.direct_loads_total.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use zfold_pool::PoolOptions;

    use crate::{CodecKind, LoadError, Store, StoreOptions};

    #[test]
    fn a_loader_reads_what_the_store_reads() {
        let pool = zfold_pool::create("test", &PoolOptions::default()).unwrap();
        let store = Store::new(pool, &StoreOptions::new(10, CodecKind::Lz4.into())).unwrap();
        let text: Vec<u8> = (0..4096_u32).map(|n| (n / 50 % 251) as u8).collect();
        let pages = [text, crate::conformance::page(7, 4096), vec![5; 4096]];
        for (key, page) in (0..).zip(&pages) {
            store.store(key, page).unwrap();
        }
        let (mut loader, mut back) = (store.loader(), vec![0; 4096]);
        for (key, page) in (0..).zip(&pages) {
            assert!(store.load_with(&mut loader, key, &mut back).unwrap());
            assert_eq!(&back, page, "{key}");
        }
        assert!(!store.load_with(&mut loader, 9, &mut back).unwrap());
        assert!(matches!(store.load_with(&mut loader, 10, &mut back), Err(LoadError::Key(_))));
        assert_eq!(store.stats().loads_total, 3);
    }
}
