//! Any sequence of operations on a store over any pool: a load gives the page that was stored
//! last or says that there is none, and the counters agree; also over a backing file, with
//! deduplication, recompression and snapshots.

#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use zfold_fuzz::{OPS_PER_CHECK, Subject, words};
use zfold_store::backing::MemoryBacking;
use zfold_store::conformance::{Model, Op};
use zfold_store::{BackingOptions, CodecKind, CodecSpec, Incompressible, Store, StoreOptions};

fuzz_target!(|data: &[u8]| {
    let Some((subject, bytes)) = Subject::from_bytes(data) else { return };
    let Some((&[variant, limit, backing], bytes)) = bytes.split_first_chunk() else { return };
    let codecs = [CodecKind::Lz4, CodecKind::Zstd, CodecKind::Page, CodecKind::Lz4];
    let mut options = StoreOptions::new(1000, codecs[variant as usize % 4].into());
    options.key_header = variant & 4 != 0;
    if variant & 8 != 0 {
        options.incompressible = Incompressible::Reject;
    }
    if variant & 16 != 0 {
        options.limit_bytes = Some(u64::from(limit) << 14);
        options.accept_percent = limit % 101;
    }
    if variant & 32 != 0 {
        let strong: CodecSpec = "zstd:3".parse().expect("a codec");
        options.recompression = vec![strong.into()];
    }
    options.deduplicate = !options.key_header && variant & 64 != 0;
    if variant & 128 != 0 {
        // From nothing to about what all pages of the model take.
        let memory = MemoryBacking::new(usize::from(backing >> 1) << 14);
        options.backing = Some(BackingOptions::new(Arc::new(memory)));
    }
    let Subject { pool, memory } = subject;
    let store = Store::new(pool, &options).expect("the options are in range");
    let mut model = Model::new(&store, 0);
    for (n, word) in words(bytes).enumerate() {
        model.apply(&Op::from_word(word));
        if n % OPS_PER_CHECK == OPS_PER_CHECK - 1 {
            store.check();
            memory.ration(word);
        }
    }
    model.finish();
    store.check();
    assert!(store.is_empty(), "all pages were invalidated");
});
