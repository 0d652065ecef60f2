//! What malloc keeps of memory that was freed.

/// Buffers of so many bytes and more are returned to the system, and so much at the end of the
/// heap.
#[cfg(target_env = "gnu")]
const LARGE_BYTES: i32 = 128 << 10;

/// Makes malloc keep little memory: one arena instead of one for each thread, large buffers go back
/// to the system when they are freed. By default they do so only until the first one is freed; from
/// then on they are kept, with holes between, which no limit counts. Does nothing where malloc is
/// not glibc's. To be called while no other thread runs.
///
/// # Cost
/// Threads contend for the arena where buffers have more than about a kilobyte; each thread has its
/// own smaller ones. New large buffers are filled with zeros, so what is large and comes often has
/// memory of its own.
pub fn keep_little_memory() {
    #[cfg(target_env = "gnu")]
    for (which, value) in [
        (libc::M_ARENA_MAX, 1),
        (libc::M_MMAP_THRESHOLD, LARGE_BYTES),
        (libc::M_TRIM_THRESHOLD, LARGE_BYTES),
    ] {
        // SAFETY: takes numbers; no other thread uses malloc meanwhile.
        unsafe { libc::mallopt(which, value) };
    }
}
