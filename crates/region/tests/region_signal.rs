//! The path of a fault allocates nothing and leaves errno alone. A program of its own, because it
//! counts all allocations.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use zfold_region::{MemoryOptions, Region};
use zfold_store::CodecKind;
use zfold_testing::Random;

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;

thread_local! {
    /// Allocations of this thread; no destructor, so it can be used anywhere.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

impl Counting {
    fn count() {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
    }
}

// SAFETY: hands everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        Self::count();
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        Self::count();
        // SAFETY: the caller's promise.
        unsafe { System.realloc(at, layout, len) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn errno() -> *mut libc::c_int {
    // SAFETY: every thread has one.
    unsafe { libc::__errno_location() }
}

/// Touches all pages, in order and at random, in a thread that has never faulted before.
fn allocations_of_faults(region: &mut Region) -> u64 {
    let touch = move || {
        let bytes = region.as_mut_slice::<u8>();
        // SAFETY: this thread's.
        unsafe { *errno() = 77 };
        let before = COUNT.get();
        let mut random = Random::new(1);
        for n in 0..4 * bytes.len() / PAGE {
            let page = if n % 2 == 0 { n / 2 } else { random.index(bytes.len()) };
            bytes[page % (bytes.len() / PAGE) * PAGE] ^= 1;
        }
        let after = COUNT.get();
        // SAFETY: same as above.
        assert_eq!(unsafe { *errno() }, 77, "a fault has changed errno");
        after - before
    };
    std::thread::scope(|scope| scope.spawn(touch).join().unwrap())
}

#[test]
fn faults_allocate_nothing_and_keep_errno() {
    for codec in CodecKind::ALL {
        let options = MemoryOptions::new(MIB).with_codec(codec);
        let mut region = Region::new(4 * MIB, &options).unwrap();
        for (n, byte) in region.as_mut_slice::<u8>().iter_mut().enumerate() {
            *byte = (n / 100 + n / PAGE) as u8;
        }
        let before = region.stats();
        let allocations = allocations_of_faults(&mut region);
        let stats = region.stats();
        assert!(stats.loads_total > before.loads_total + 500, "{stats:?}");
        assert_eq!(allocations, 0, "with {options:?}");
    }
}
