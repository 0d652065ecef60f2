//! Store and load beside the bare codec on the same real pages in the same random order: what the
//! store adds to compression and decompression. LZ4, zsmalloc, one thread.

mod common;

use std::hint::black_box;

use common::{PAGE, pages};
use criterion::{Criterion, criterion_group, criterion_main};
use zfold_pool::PoolOptions;
use zfold_store::{CodecKind, CodecSpec, Store, StoreOptions};
use zfold_testing::Random;

/// Keys of the store: each captured page lies under several.
const KEYS: usize = 20_000;

fn bench(criterion: &mut Criterion) {
    let pages = pages();
    let spec = CodecSpec::from(CodecKind::Lz4);
    let mut codec = spec.context(PAGE).expect("a context");
    let pool = zfold_pool::create("bench", &PoolOptions::default()).expect("a pool");
    let store = Store::new(pool, &StoreOptions::new(KEYS as u64, spec)).expect("a store");

    let mut out = [0; PAGE];
    let mut compress = |page: &[u8]| codec.compress(page, &mut out).map(|len| out[..len].to_vec());
    let page_of = |key: usize| &pages[key % pages.len()];
    // As in the store, what does not compress is kept as it is.
    let blocks: Vec<_> = (0..KEYS).map(|key| compress(page_of(key))).collect();
    for key in 0..KEYS {
        store.store(key as u64, page_of(key)).expect("stored");
    }

    // Twice, alternating, so that a drift of the machine shows as a difference between rounds.
    for round in ["a", "b"] {
        let mut random = Random::new(5);
        criterion.bench_function(&format!("compress/bare/{round}"), |bench| {
            bench.iter(|| {
                let page = page_of(random.index(KEYS));
                black_box(codec.compress(page, black_box(&mut out)))
            });
        });
        let mut random = Random::new(5);
        criterion.bench_function(&format!("compress/store/{round}"), |bench| {
            bench.iter(|| {
                // Another page than the key holds: sizes differ, as they do in life.
                let page = page_of(random.index(KEYS));
                store.store(random.index(KEYS) as u64, page).expect("stored")
            });
        });
        // Load what was compressed at the start.
        for key in 0..KEYS {
            store.store(key as u64, page_of(key)).expect("stored");
        }
        let mut random = Random::new(6);
        let mut page = [0; PAGE];
        criterion.bench_function(&format!("decompress/bare/{round}"), |bench| {
            bench.iter(|| {
                let key = random.index(KEYS);
                match &blocks[key] {
                    Some(block) => codec.decompress(block, black_box(&mut page)).expect("valid"),
                    None => black_box(&mut page).copy_from_slice(page_of(key)),
                }
            });
        });
        let mut random = Random::new(6);
        criterion.bench_function(&format!("decompress/store/{round}"), |bench| {
            bench.iter(|| {
                let key = random.index(KEYS) as u64;
                assert!(store.load(key, black_box(&mut page)).expect("loaded"));
            });
        });
    }
}

criterion_group!(benches, bench);
criterion_main!(benches);
