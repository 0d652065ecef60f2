//! Ratios on a noisy machine: contestants take turns in short batches, and what is reported is
//! the median batch of each and the median of the ratios of neighbouring batches.
//!
//! - replacing and reading objects of the sizes that real pages compress to: zsmalloc and fit
//!   beside mimalloc and malloc. mimalloc uses huge pages where the system lets it;
//!   `MIMALLOC_ALLOW_THP=0` gives it the same pages as the pools.
//! - storing and loading pages beside the bare codec (LZ4, zsmalloc and fit, one thread)

mod common;

use std::hint::black_box;
use std::time::Instant;

use common::{Churn, MALLOC, MIMALLOC, OfPool, PAGE, Random, objects, pages};
use zfold_pool::{Allocator, PoolOptions};
use zfold_store::{CodecKind, CodecSpec, Store, StoreOptions};

/// Batches of each contestant.
const ROUNDS: usize = 301;
/// Operations of a batch.
const BATCH: usize = 2_000;

/// A contestant: its name and one operation of it.
type Contestant<'a> = (&'a str, &'a mut dyn FnMut());

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Lets contestants take turns; the ratios are to the first.
fn race(title: &str, contestants: &mut [Contestant<'_>]) {
    let mut times = vec![Vec::new(); contestants.len()];
    for _ in 0..ROUNDS {
        for ((_, operation), times) in contestants.iter_mut().zip(&mut times) {
            let start = Instant::now();
            (0..BATCH).for_each(|_| operation());
            times.push(start.elapsed().as_secs_f64() * 1e9 / BATCH as f64);
        }
    }
    println!("{title}");
    for ((name, _), own) in contestants.iter().zip(&times) {
        let ratios = own.iter().zip(&times[0]).map(|(own, base)| own / base).collect();
        println!("  {name:24} {:8.0} ns   x {:.2}", median(own.clone()), median(ratios));
    }
}

fn race_heaps(objects: &[Vec<u8>], live: usize) {
    let zsmalloc = OfPool::new(Allocator::Zsmalloc, false);
    let at_once = OfPool::new(Allocator::Zsmalloc, true);
    let fit = OfPool::new(Allocator::Fit, true);
    let mut mimalloc = Churn::new(&MIMALLOC, objects, live);
    let mut malloc = Churn::new(&MALLOC, objects, live);
    let mut zsmalloc = Churn::new(&zsmalloc, objects, live);
    let mut at_once = Churn::new(&at_once, objects, live);
    let mut fit = Churn::new(&fit, objects, live);
    race(
        &format!("replace one of {live} objects"),
        &mut [
            ("mimalloc", &mut || mimalloc.replace()),
            ("malloc", &mut || malloc.replace()),
            ("zsmalloc alloc+write+free", &mut || zsmalloc.replace()),
            ("zsmalloc insert+free", &mut || at_once.replace()),
            ("fit insert+free", &mut || fit.replace()),
        ],
    );
    let [mut a, mut b, mut c, mut d] = [[0; PAGE]; 4];
    race(
        &format!("read one of {live} objects"),
        &mut [
            ("mimalloc", &mut || mimalloc.read(black_box(&mut a))),
            ("malloc", &mut || malloc.read(black_box(&mut b))),
            ("zsmalloc", &mut || zsmalloc.read(black_box(&mut c))),
            ("fit", &mut || fit.read(black_box(&mut d))),
        ],
    );
}

fn race_store(keys: usize) {
    let pages = pages();
    let spec = CodecSpec::from(CodecKind::Lz4);
    let [mut bare, mut bare_too] = [0; 2].map(|_| spec.context(PAGE).expect("a context"));
    let stores = [Allocator::Zsmalloc, Allocator::Fit].map(|allocator| {
        let pool = zfold_pool::create("paired", &PoolOptions::new(allocator)).expect("a pool");
        Store::new(pool, &StoreOptions::new(keys as u64, spec)).expect("a store")
    });
    let page_of = |key: usize| &pages[key % pages.len()];
    let fill = || {
        for (store, key) in stores.iter().flat_map(|store| (0..keys).map(move |key| (store, key))) {
            store.store(key as u64, page_of(key)).expect("stored");
        }
    };
    fill();
    let replace = |store: &Store, random: &mut Random| {
        let page = page_of(random.below(keys));
        store.store(random.below(keys) as u64, page).expect("stored");
    };
    let mut out = [0; PAGE];
    let [mut one, mut two, mut three] = [0; 3].map(|_| Random(5));
    race(
        &format!("store a page under one of {keys} keys"),
        &mut [
            ("bare compression", &mut || {
                let page = page_of(one.below(keys));
                black_box(bare.compress(page, black_box(&mut out)));
            }),
            ("store, zsmalloc", &mut || replace(&stores[0], &mut two)),
            ("store, fit", &mut || replace(&stores[1], &mut three)),
        ],
    );
    fill();
    let blocks: Vec<Option<Vec<u8>>> = (0..keys)
        .map(|key| bare_too.compress(page_of(key), &mut out).map(|len| out[..len].to_vec()))
        .collect();
    let load = |store: &Store, random: &mut Random, page: &mut [u8; PAGE]| {
        let key = random.below(keys) as u64;
        assert!(store.load(key, black_box(page)).expect("loaded"));
    };
    let [mut page, mut page_two, mut page_three] = [[0; PAGE]; 3];
    let [mut one, mut two, mut three] = [0; 3].map(|_| Random(6));
    race(
        &format!("load one of {keys} pages"),
        &mut [
            ("bare decompression", &mut || {
                let key = one.below(keys);
                match &blocks[key] {
                    Some(block) => bare.decompress(block, black_box(&mut page)).expect("valid"),
                    None => black_box(&mut page).copy_from_slice(page_of(key)),
                }
            }),
            ("load, zsmalloc", &mut || load(&stores[0], &mut two, &mut page_two)),
            ("load, fit", &mut || load(&stores[1], &mut three, &mut page_three)),
        ],
    );
}

fn main() {
    let mut objects = objects();
    objects.retain(|object| object.len() <= 3968);
    for live in [5_000, 40_000] {
        race_heaps(&objects, live);
        race_store(live);
    }
}
