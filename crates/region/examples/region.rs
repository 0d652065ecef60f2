//! 2 GiB of numbers in a region, of which 256 MiB lie in memory as they are.

use zfold_region::{MemoryOptions, Region};

const MIB: u64 = 1 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut region = Region::new(2 << 30, &MemoryOptions::new(256 << 20))?;
    let numbers = region.as_mut_slice::<f64>();
    for (n, number) in numbers.iter_mut().enumerate() {
        *number = (n / 100) as f64;
    }
    println!("the last of {} numbers is {}", numbers.len(), numbers[numbers.len() - 1]);
    let sum: f64 = numbers.iter().step_by(1000).sum();
    println!("every thousandth together: {sum}");
    let stats = region.stats();
    println!("{} MiB are in memory as they are", stats.resident_pages * stats.page_bytes / MIB);
    let compressed = stats.stored_pages + stats.copied_pages;
    println!("{} MiB lie in {} MiB", compressed * stats.page_bytes / MIB, stats.store_bytes / MIB);
    Ok(())
}
