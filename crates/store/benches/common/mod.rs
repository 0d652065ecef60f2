//! What the benchmarks work on: the project's captures of real memory, whole and LZ4-compressed,
//! in a fixed random order; and the allocators that they compare.

use zfold_pool::{Allocator, Handle, Pool, PoolOptions};
use zfold_store::{CodecKind, CodecSpec};
use zfold_testing::Random;

/// Bytes of a captured page.
pub(crate) const PAGE: usize = 4096;

const CAPTURES: [&[u8]; 5] = [
    include_bytes!("../../../../corpus/cc1.pages.zst"),
    include_bytes!("../../../../corpus/node.pages.zst"),
    include_bytes!("../../../../corpus/numpy.pages.zst"),
    include_bytes!("../../../../corpus/postgres.pages.zst"),
    include_bytes!("../../../../corpus/rustc.pages.zst"),
];

/// Returns all captured pages, shuffled.
pub(crate) fn pages() -> Vec<[u8; PAGE]> {
    let mut pages = Vec::new();
    for capture in CAPTURES {
        let mut raw = vec![0; 1024 * PAGE];
        let len = zstd_safe::decompress(&mut raw[..], capture).expect("a capture");
        let (chunks, rest) = raw[..len].as_chunks();
        assert!(rest.is_empty());
        pages.extend_from_slice(chunks);
    }
    let mut random = Random::new(1);
    (1..pages.len()).rev().for_each(|at| pages.swap(at, random.index(at + 1)));
    pages
}

/// Returns the pages that LZ4 makes shorter, compressed.
pub(crate) fn objects() -> Vec<Vec<u8>> {
    let mut codec = CodecSpec::from(CodecKind::Lz4).context(PAGE).expect("a context");
    let mut out = [0; PAGE];
    let compress =
        |page: &[u8; PAGE]| codec.compress(page, &mut out).map(|len| out[..len].to_vec());
    pages().iter().filter_map(compress).collect()
}

/// Returns the middle one of `values`, of which there is one at least.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What the benchmarks ask of an allocator.
pub(crate) trait Heap {
    type Object: Copy;
    fn make(&self, bytes: &[u8]) -> Self::Object;
    fn drop(&self, object: Self::Object);
    fn copy_out(&self, object: Self::Object, len: usize, to: &mut [u8]);
}

/// A pool.
pub(crate) struct OfPool(Box<dyn Pool>);

impl OfPool {
    pub(crate) fn new(allocator: Allocator) -> Self {
        Self(zfold_pool::create("bench", &PoolOptions::new(allocator)).expect("a pool"))
    }
}

impl Heap for OfPool {
    type Object = Handle;

    fn make(&self, bytes: &[u8]) -> Handle {
        self.0.insert(bytes).expect("memory")
    }

    fn drop(&self, object: Handle) {
        self.0.free(object).expect("a live object");
    }

    fn copy_out(&self, object: Handle, len: usize, to: &mut [u8]) {
        to[..len].copy_from_slice(&self.0.read(object).expect("a live object"));
    }
}

/// malloc and free of some library.
pub(crate) struct OfMalloc {
    malloc: unsafe extern "C" fn(usize) -> *mut libc::c_void,
    free: unsafe extern "C" fn(*mut libc::c_void),
}

pub(crate) const MIMALLOC: OfMalloc =
    OfMalloc { malloc: libmimalloc_sys::mi_malloc as _, free: libmimalloc_sys::mi_free as _ };
pub(crate) const MALLOC: OfMalloc = OfMalloc { malloc: libc::malloc as _, free: libc::free as _ };

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

/// A heap with live objects that are replaced at random.
pub(crate) struct Churn<'a, H: Heap> {
    heap: &'a H,
    objects: &'a [Vec<u8>],
    live: Vec<(H::Object, u32)>,
    random: Random,
}

impl<'a, H: Heap> Churn<'a, H> {
    pub(crate) fn new(heap: &'a H, objects: &'a [Vec<u8>], live: usize) -> Self {
        let mut random = Random::new(7);
        let live_count = live;
        let live = (0..live).map(|_| Self::make(heap, objects, &mut random)).collect();
        let mut churn = Self { heap, objects, live, random };
        // What a fresh heap looks like says little: let it age first.
        (0..4 * live_count).for_each(|_| churn.replace());
        churn
    }

    fn make(heap: &H, objects: &[Vec<u8>], random: &mut Random) -> (H::Object, u32) {
        let which = random.index(objects.len());
        (heap.make(&objects[which]), which as u32)
    }

    /// Frees a random object and makes another.
    pub(crate) fn replace(&mut self) {
        let at = self.random.index(self.live.len());
        self.heap.drop(self.live[at].0);
        self.live[at] = Self::make(self.heap, self.objects, &mut self.random);
    }

    /// Copies a random object out.
    pub(crate) fn read(&mut self, to: &mut [u8]) {
        let (object, which) = self.live[self.random.index(self.live.len())];
        self.heap.copy_out(object, self.objects[which as usize].len(), to);
    }
}

impl<H: Heap> Drop for Churn<'_, H> {
    fn drop(&mut self) {
        self.live.iter().for_each(|&(object, _)| self.heap.drop(object));
    }
}
