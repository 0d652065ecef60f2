//! Pool operations on objects of the sizes that real pages compress to, beside mimalloc and the
//! system's malloc doing the same.
//!
//! - `replace`: with 40,000 live objects, free a random one, allocate another and write it; by
//!   `alloc` + `write` + `free` and by `insert` + `free`
//! - `read`: copy a random object out
//! - `compact`: 20,000 objects of which a random half was freed
//!
//! The resident sizes of the 40,000 live objects are printed first.

mod common;

use std::hint::black_box;

use common::{Churn, Heap, MALLOC, MIMALLOC, OfPool, objects};
use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use zfold_pool::{Allocator, Pool, PoolOptions};
use zfold_testing::Random;

/// Live objects of the benchmarks.
const LIVE: usize = 40_000;

/// Resident bytes of this process.
fn resident() -> i64 {
    let smaps = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let rss = smaps.lines().find_map(|line| line.strip_prefix("Rss:"));
    rss.and_then(|rss| rss.trim().trim_end_matches(" kB").parse::<i64>().ok()).unwrap_or(0) << 10
}

fn bench_heap<H: Heap>(criterion: &mut Criterion, name: &str, heap: &H, objects: &[Vec<u8>]) {
    let before = resident();
    let mut churn = Churn::new(heap, objects, LIVE);
    let payload = churn.payload_bytes();
    println!("{name}: {} bytes resident for {payload} of payload", resident() - before);
    let mut group = criterion.benchmark_group("replace");
    group.bench_function(BenchmarkId::from_parameter(name), |bench| {
        bench.iter(|| churn.replace());
    });
    group.finish();
    let mut group = criterion.benchmark_group("read");
    let mut to = [0; common::PAGE];
    group.bench_function(BenchmarkId::from_parameter(name), |bench| {
        bench.iter(|| churn.read(black_box(&mut to)));
    });
    group.finish();
}

fn bench_heaps(criterion: &mut Criterion) {
    let mut objects = objects();
    // The few that zbud refuses are left out, so that all have the same to do.
    objects.retain(|object| object.len() <= 3968);
    // The contestants that claims are made about come next to each other, twice.
    for round in ["a", "b"] {
        let zsmalloc = Allocator::Zsmalloc;
        let name = format!("zsmalloc/{round}");
        bench_heap(criterion, &name, &OfPool::new(zsmalloc, false), &objects);
        let name = format!("zsmalloc-insert/{round}");
        bench_heap(criterion, &name, &OfPool::new(zsmalloc, true), &objects);
        bench_heap(criterion, &format!("mimalloc/{round}"), &MIMALLOC, &objects);
    }
    bench_heap(criterion, "fit-insert", &OfPool::new(Allocator::Fit, true), &objects);
    bench_heap(criterion, "z3fold", &OfPool::new(Allocator::Z3fold, false), &objects);
    bench_heap(criterion, "zbud", &OfPool::new(Allocator::Zbud, false), &objects);
    bench_heap(criterion, "malloc", &MALLOC, &objects);
}

fn half_freed(objects: &[Vec<u8>]) -> Box<dyn Pool> {
    let pool = zfold_pool::create("bench", &PoolOptions::new(Allocator::Zsmalloc)).expect("a pool");
    let mut random = Random::new(3);
    let object = |random: &mut Random| &objects[random.index(objects.len())];
    let mut live: Vec<_> =
        (0..20_000).map(|_| pool.insert(object(&mut random)).expect("memory")).collect();
    for _ in 0..10_000 {
        let at = random.index(live.len());
        pool.free(live.swap_remove(at)).expect("live");
    }
    pool
}

fn bench_compact(criterion: &mut Criterion) {
    let objects = objects();
    criterion.bench_function("compact/zsmalloc", |bench| {
        let compact = |pool: Box<dyn Pool>| (pool.compact(u64::MAX), pool);
        bench.iter_batched(|| half_freed(&objects), compact, BatchSize::PerIteration);
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(30);
    targets = bench_heaps, bench_compact
}
criterion_main!(benches);
