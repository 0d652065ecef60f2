//! What a far backing costs of the CPU: writes and reads through an engine in memory, in the CPU
//! time of the calling thread, so without any network. `cargo run --release --features testing
//! --example far_speed -p zfold-far`.

use std::fs;
use std::sync::Arc;

use zfold_far::testing::{SimEngine, SimFaults};
use zfold_far::{FarBacking, FarOptions};
use zfold_store::backing::Backing;

const LEN: u64 = 256 << 20;

/// Returns the nanoseconds that this thread was on a CPU.
fn cpu_ns() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux with schedstat");
    text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("nanoseconds first")
}

fn timed(what: &str, bytes: u64, work: impl FnOnce()) {
    let begun = cpu_ns();
    work();
    let seconds = (cpu_ns() - begun) as f64 / 1e9;
    let rate = bytes as f64 / 1e6 / seconds;
    println!("{what}: {rate:.0} MB/s of CPU time, {:.1} % of a CPU at 100 MB/s", 1e4 / rate);
}

fn main() {
    for (object_bytes, batch) in [(64 << 10, 48 << 10), (1 << 20, 512 << 10)] {
        let engine = SimEngine::new(1, SimFaults::default()).with_object_bytes(object_bytes);
        let far = FarBacking::open(Arc::new(engine), FarOptions::new(LEN)).expect("a backing");
        let data: Vec<u8> = (0..batch).map(|at: usize| (at / 3) as u8).collect();
        println!("objects of {} KiB, writes of {} KiB", object_bytes >> 10, batch >> 10);
        let whole = LEN / batch as u64 * batch as u64;
        timed("  write", whole, || {
            (0..whole).step_by(batch).for_each(|at| far.write_at(at, &data).expect("a write"));
        });
        for (name, len) in [("  read of 1.5 KiB", 1536), ("  read of 4 KiB", 4096)] {
            let mut out = vec![0; len];
            let whole = whole / len as u64 * len as u64;
            timed(name, whole, || {
                (0..whole).step_by(len).for_each(|at| far.read_at(at, &mut out).expect("a read"));
            });
        }
        let stats = far.stats();
        let per_mille = stats.metadata_bytes * 1000 / stats.live_bytes;
        println!("  {} objects; memory beside: {per_mille} bytes of 1000", stats.objects);
    }
}
