//! A cache of web pages: far more text than its limit has room for, most of it there.

use zfold_store::{Cache, CacheOptions};

const MIB: u64 = 1 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cache = Cache::open(&CacheOptions::new(8 * MIB))?;
    for n in 0..40_000 {
        let page = format!("<li>entry {n} of a long list, much like all others</li>\n").repeat(50);
        cache.insert(format!("/page/{n}").as_bytes(), page.as_bytes())?;
    }
    let page = cache.get(b"/page/39999")?.expect("the newest page");
    println!("the newest page has {} bytes", page.len());
    let stats = cache.stats();
    println!("{} pages, {} MiB of text", stats.values, stats.value_bytes / MIB);
    println!("lie in {} MiB of memory", stats.held_bytes.div_ceil(MIB));
    println!("{} older pages had to leave", stats.evictions_total);
    Ok(())
}
