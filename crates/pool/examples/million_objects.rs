//! A million small objects in a pool: what they cost, and what comes back when most are freed.

use zfold_pool::{Allocator, PoolOptions};

const MIB: u64 = 1 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = zfold_pool::create("objects", &PoolOptions::new(Allocator::Zsmalloc))?;
    let mut handles = Vec::new();
    for n in 0..1_000_000 {
        handles.push(pool.insert(format!("object {n} {}", "x".repeat(n % 300)).as_bytes())?);
    }
    let stats = pool.stats();
    println!("{} objects, {} MiB of bytes", stats.objects, stats.payload_bytes / MIB);
    println!("lie in {} MiB", pool.held_bytes() / MIB);
    println!("one of them: {}", String::from_utf8_lossy(&pool.read(handles[123_456])?[..13]));
    for (_, &handle) in handles.iter().enumerate().filter(|(n, _)| n % 4 != 0) {
        pool.free(handle)?;
    }
    println!("three of four freed: {} MiB", pool.held_bytes() / MIB);
    pool.compact(u64::MAX);
    println!("and compacted: {} MiB", pool.held_bytes() / MIB);
    Ok(())
}
