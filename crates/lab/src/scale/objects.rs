//! The objects that are put into pools, and the pools.

use zfold_compare::input::PageSet;
use zfold_pool::{Allocator, Contexts, KernelRules, Locking, Pool, PoolOptions};
use zfold_store::{CodecKind, CodecSpec};

use crate::experiment::Error;
use crate::experiment::content::PAGE_BYTES;

/// Pages of the built-in captures that a pool would hold, raw and compressed by LZ4.
pub(super) struct Objects {
    pub(super) pages: Vec<Vec<u8>>,
    pub(super) blobs: Vec<Vec<u8>>,
}

impl Objects {
    /// Returns all pages that are worth compressing: neither one repeated word, nor longer than
    /// `huge_len` when compressed.
    pub(super) fn new(huge_len: usize) -> Result<Self, Error> {
        let mut codec = codec()?;
        let mut objects = Self { pages: Vec::new(), blobs: Vec::new() };
        let mut out = vec![0; huge_len];
        let sets: Vec<_> = PageSet::builtin(PAGE_BYTES).collect();
        for page in sets.iter().flat_map(PageSet::pages) {
            if page[8..] == page[..PAGE_BYTES - 8] {
                continue;
            }
            if let Some(len) = codec.compress(page, &mut out) {
                objects.pages.push(page.to_vec());
                objects.blobs.push(out[..len].to_vec());
            }
        }
        Ok(objects)
    }
}

pub(super) fn codec() -> Result<Box<dyn zfold_store::Codec>, Error> {
    let context = CodecSpec::from(CodecKind::Lz4).context(PAGE_BYTES);
    context.map_err(|error| Error::Other(error.to_string()))
}

/// One lock design of one allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contestant {
    pub(super) allocator: Allocator,
    pub(super) locking: Locking,
}

impl Contestant {
    /// Returns the name in figures.
    pub(super) fn name(self) -> String {
        format!("{} {}", self.allocator, self.locking)
    }

    /// Returns a new pool.
    pub(super) fn pool(self) -> Result<Box<dyn Pool>, Error> {
        let options = PoolOptions::new(self.allocator)
            .with_locking(self.locking)
            .with_rules(KernelRules { contexts: Contexts::Single, ..KernelRules::default() });
        Ok(zfold_pool::create("scale", &options)?)
    }
}
