//! Ratios on a noisy machine: contestants take turns in short batches, and what is reported is
//! the median batch of each and the median of the ratios of neighbouring batches.
//!
//! - replacing and reading objects of the sizes that real pages compress to: zsmalloc and fit
//!   beside mimalloc and malloc. mimalloc uses huge pages where the system lets it;
//!   `MIMALLOC_ALLOW_THP=0` gives it the same pages as the pools.
//! - storing and loading pages beside bare LZ4 (zsmalloc and fit with LZ4, fit with `page`; one
//!   thread)
//!
//! Arguments are parts of titles: only races whose title has one of them are run.

mod common;

use std::hint::black_box;
use std::time::Instant;

use common::{Churn, MALLOC, MIMALLOC, OfPool, PAGE, median, objects, pages};
use zfold_pool::{Allocator, PoolOptions};
use zfold_store::{Codec, CodecKind, CodecSpec, Store, StoreOptions};
use zfold_testing::Random;

/// Batches of each contestant.
const ROUNDS: usize = 301;
/// Operations of a batch.
const BATCH: usize = 2_000;

/// A contestant: its name and one operation of it.
type Contestant<'a> = (&'a str, &'a mut dyn FnMut());

/// Returns whether a race is wanted.
fn is_wanted(title: &str) -> bool {
    let mut parts = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).peekable();
    parts.peek().is_none() || parts.any(|part| title.contains(&part))
}

/// Lets contestants take turns; the ratios are to the first.
fn race(title: &str, contestants: &mut [Contestant<'_>]) {
    if !is_wanted(title) {
        return;
    }
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
    let (zsmalloc, fit) = (OfPool::new(Allocator::Zsmalloc), OfPool::new(Allocator::Fit));
    let mut mimalloc = Churn::new(&MIMALLOC, objects, live);
    let mut malloc = Churn::new(&MALLOC, objects, live);
    let mut zsmalloc = Churn::new(&zsmalloc, objects, live);
    let mut fit = Churn::new(&fit, objects, live);
    race(
        &format!("replace one of {live} objects"),
        &mut [
            ("mimalloc", &mut || mimalloc.replace()),
            ("malloc", &mut || malloc.replace()),
            ("zsmalloc insert+free", &mut || zsmalloc.replace()),
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

#[expect(clippy::too_many_lines, reason = "a list of contestants")]
fn race_store(keys: usize) {
    let pages = pages();
    let [lz4, page] = [CodecKind::Lz4, CodecKind::Page].map(CodecSpec::from);
    let contexts = || [lz4, page].map(|spec| spec.context(PAGE).expect("a context"));
    let contestants = [
        ("zsmalloc", Allocator::Zsmalloc, lz4),
        ("fit", Allocator::Fit, lz4),
        ("fit, page", Allocator::Fit, page),
    ];
    let stores = contestants.map(|(_, allocator, spec)| {
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
    let [mut bare, mut bare_page] = contexts();
    let compress = |codec: &mut dyn Codec, random: &mut Random| {
        let mut out = [0; PAGE];
        black_box(codec.compress(page_of(random.index(keys)), black_box(&mut out)));
    };
    let replace = |store: &Store, random: &mut Random| {
        let page = page_of(random.index(keys));
        store.store(random.index(keys) as u64, page).expect("stored");
    };
    let [mut a, mut b, mut c, mut d, mut e] = [0; 5].map(|_| Random::new(5));
    race(
        &format!("store a page under one of {keys} keys"),
        &mut [
            ("bare LZ4", &mut || compress(&mut *bare, &mut a)),
            ("zsmalloc", &mut || replace(&stores[0], &mut b)),
            ("fit", &mut || replace(&stores[1], &mut c)),
            ("fit, page", &mut || replace(&stores[2], &mut d)),
            ("bare page", &mut || compress(&mut *bare_page, &mut e)),
        ],
    );
    fill();
    let blocks = |codec: &mut dyn Codec| -> Vec<Option<Vec<u8>>> {
        let mut out = [0; PAGE];
        let block = |key| {
            let len = codec.compress(page_of(key), &mut out)?;
            Some(out[..len].to_vec())
        };
        (0..keys).map(block).collect()
    };
    let [of_lz4, of_page] = [blocks(&mut *bare), blocks(&mut *bare_page)];
    let decompress = |codec: &mut dyn Codec,
                      blocks: &[Option<Vec<u8>>],
                      random: &mut Random,
                      page: &mut [u8; PAGE]| {
        let key = random.index(keys);
        match &blocks[key] {
            Some(block) => codec.decompress(block, black_box(page)).expect("valid"),
            None => black_box(page).copy_from_slice(page_of(key)),
        }
    };
    let load = |store: &Store, random: &mut Random, page: &mut [u8; PAGE]| {
        let key = random.index(keys) as u64;
        assert!(store.load(key, black_box(page)).expect("loaded"));
    };
    let mut out = [[0; PAGE]; 5];
    let [mut a, mut b, mut c, mut d, mut e] = [0; 5].map(|_| Random::new(6));
    let [of_a, of_b, of_c, of_d, of_e] = &mut out;
    race(
        &format!("load one of {keys} pages"),
        &mut [
            ("bare LZ4", &mut || decompress(&mut *bare, &of_lz4, &mut a, of_a)),
            ("zsmalloc", &mut || load(&stores[0], &mut b, of_b)),
            ("fit", &mut || load(&stores[1], &mut c, of_c)),
            ("fit, page", &mut || load(&stores[2], &mut d, of_d)),
            ("bare page", &mut || decompress(&mut *bare_page, &of_page, &mut e, of_e)),
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
