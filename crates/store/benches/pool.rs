//! Pool operations on objects of the sizes that real pages compress to, beside mimalloc and the
//! system's malloc doing the same.
//!
//! - `replace`: with 40,000 live objects, free a random one, allocate another and write it; by
//!   `alloc` + `write` + `free` and by `insert` + `free`
//! - `read`: copy a random object out
//! - `compact`: 20,000 objects of which a random half was freed
//!
//! The resident sizes of the 40,000 live objects are printed first.

mod corpus;

use std::hint::black_box;

use corpus::Random;
use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use zfold_pool::{Allocator, Handle, PageCount, Pool, PoolOptions};

const LIVE: usize = 40_000;

/// What the benchmarks ask of an allocator.
trait Heap {
    type Object: Copy;
    fn make(&self, bytes: &[u8]) -> Self::Object;
    fn drop(&self, object: Self::Object);
    fn copy_out(&self, object: Self::Object, len: usize, to: &mut [u8]);
}

/// A pool, used in one call or in two.
struct OfPool {
    pool: Box<dyn Pool>,
    at_once: bool,
}

impl OfPool {
    fn new(allocator: Allocator, at_once: bool) -> Self {
        let pool = zfold_pool::create("bench", &PoolOptions::new(allocator)).expect("a pool");
        Self { pool, at_once }
    }
}

impl Heap for OfPool {
    type Object = Handle;

    fn make(&self, bytes: &[u8]) -> Handle {
        if self.at_once {
            return self.pool.insert(bytes).expect("memory");
        }
        let handle = self.pool.alloc(bytes.len()).expect("memory");
        self.pool.write(handle, bytes).expect("a new object");
        handle
    }

    fn drop(&self, object: Handle) {
        self.pool.free(object).expect("a live object");
    }

    fn copy_out(&self, object: Handle, len: usize, to: &mut [u8]) {
        to[..len].copy_from_slice(&self.pool.read(object).expect("a live object"));
    }
}

/// malloc and free of some library.
struct OfMalloc {
    malloc: unsafe extern "C" fn(usize) -> *mut libc::c_void,
    free: unsafe extern "C" fn(*mut libc::c_void),
}

const MIMALLOC: OfMalloc =
    OfMalloc { malloc: libmimalloc_sys::mi_malloc as _, free: libmimalloc_sys::mi_free as _ };
const MALLOC: OfMalloc = OfMalloc { malloc: libc::malloc as _, free: libc::free as _ };

impl Heap for OfMalloc {
    type Object = *mut u8;

    fn make(&self, bytes: &[u8]) -> *mut u8 {
        // SAFETY: malloc has no preconditions.
        let object = unsafe { (self.malloc)(bytes.len()) }.cast::<u8>();
        assert!(!object.is_null());
        // SAFETY: a fresh allocation of that many bytes.
        unsafe { object.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        object
    }

    fn drop(&self, object: *mut u8) {
        // SAFETY: every object comes from `make` of the same library and is dropped once.
        unsafe { (self.free)(object.cast()) };
    }

    fn copy_out(&self, object: *mut u8, len: usize, to: &mut [u8]) {
        // SAFETY: the object is live and has `len` bytes; `to` is another allocation, and longer.
        unsafe { to[..len].as_mut_ptr().copy_from_nonoverlapping(object, len) };
    }
}

/// A heap with `LIVE` objects that are replaced at random.
struct Churn<'a, H: Heap> {
    heap: &'a H,
    objects: &'a [Vec<u8>],
    live: Vec<(H::Object, u32)>,
    random: Random,
}

impl<'a, H: Heap> Churn<'a, H> {
    fn new(heap: &'a H, objects: &'a [Vec<u8>]) -> Self {
        let mut random = Random(7);
        let live = (0..LIVE).map(|_| Self::make(heap, objects, &mut random)).collect();
        let mut churn = Self { heap, objects, live, random };
        // What a fresh heap looks like says little: let it age first.
        (0..4 * LIVE).for_each(|_| churn.replace());
        churn
    }

    fn make(heap: &H, objects: &[Vec<u8>], random: &mut Random) -> (H::Object, u32) {
        let which = random.below(objects.len());
        (heap.make(&objects[which]), which as u32)
    }

    fn replace(&mut self) {
        let at = self.random.below(LIVE);
        self.heap.drop(self.live[at].0);
        self.live[at] = Self::make(self.heap, self.objects, &mut self.random);
    }

    fn read(&mut self, to: &mut [u8]) {
        let (object, which) = self.live[self.random.below(LIVE)];
        self.heap.copy_out(object, self.objects[which as usize].len(), to);
    }
}

impl<H: Heap> Drop for Churn<'_, H> {
    fn drop(&mut self) {
        self.live.iter().for_each(|&(object, _)| self.heap.drop(object));
    }
}

/// Resident bytes of this process.
fn resident() -> i64 {
    let smaps = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let rss = smaps.lines().find_map(|line| line.strip_prefix("Rss:"));
    rss.and_then(|rss| rss.trim().trim_end_matches(" kB").parse::<i64>().ok()).unwrap_or(0) << 10
}

fn bench_heap<H: Heap>(criterion: &mut Criterion, name: &str, heap: &H, objects: &[Vec<u8>]) {
    let before = resident();
    let mut churn = Churn::new(heap, objects);
    let payload: usize = churn.live.iter().map(|&(_, which)| objects[which as usize].len()).sum();
    println!("{name}: {} bytes resident for {payload} of payload", resident() - before);
    let mut group = criterion.benchmark_group("replace");
    group.bench_function(BenchmarkId::from_parameter(name), |bench| {
        bench.iter(|| churn.replace());
    });
    group.finish();
    let mut group = criterion.benchmark_group("read");
    let mut to = [0; corpus::PAGE];
    group.bench_function(BenchmarkId::from_parameter(name), |bench| {
        bench.iter(|| churn.read(black_box(&mut to)));
    });
    group.finish();
}

fn bench_heaps(criterion: &mut Criterion) {
    let mut objects = corpus::objects();
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
    bench_heap(criterion, "z3fold", &OfPool::new(Allocator::Z3fold, false), &objects);
    bench_heap(criterion, "zbud", &OfPool::new(Allocator::Zbud, false), &objects);
    bench_heap(criterion, "malloc", &MALLOC, &objects);
}

fn half_freed(objects: &[Vec<u8>]) -> Box<dyn Pool> {
    let pool = zfold_pool::create("bench", &PoolOptions::new(Allocator::Zsmalloc)).expect("a pool");
    let mut random = Random(3);
    let object = |random: &mut Random| &objects[random.below(objects.len())];
    let mut live: Vec<_> =
        (0..20_000).map(|_| pool.insert(object(&mut random)).expect("memory")).collect();
    for _ in 0..10_000 {
        let at = random.below(live.len());
        pool.free(live.swap_remove(at)).expect("live");
    }
    pool
}

fn bench_compact(criterion: &mut Criterion) {
    let objects = corpus::objects();
    criterion.bench_function("compact/zsmalloc", |bench| {
        let compact = |pool: Box<dyn Pool>| (pool.compact(PageCount::MAX), pool);
        bench.iter_batched(|| half_freed(&objects), compact, BatchSize::PerIteration);
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(30);
    targets = bench_heaps, bench_compact
}
criterion_main!(benches);
