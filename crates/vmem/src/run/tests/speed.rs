//! How long things take, in-process. The numbers go to standard error; what is asserted has room
//! for slow and busy machines.

use std::time::{Duration, Instant};

use super::*;

/// Time that this thread has had a processor.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn random_faults_and_releases_are_fast() {
    let Some(world) = World::new("random_faults", 32 * MIB) else { return };
    let memory = world.map(256 * MIB);
    let count = memory.len() / PAGE;
    let begin = Instant::now();
    pages(&memory).for_each(|page| fill(page, 1));
    let filled = begin.elapsed();
    let before = world.stats();
    let begin = Instant::now();
    let mut number = 88_172_645_463_325_252_u64;
    for _ in 0..20_000 {
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        let page = memory.start + (number as usize % count) * PAGE;
        assert_eq!(sys::get(page), (page as u64) ^ (1 << 20));
    }
    let elapsed = begin.elapsed();
    let stats = world.stats();
    let faults = stats.stored_faults_total + stats.chance_faults_total
        - before.stored_faults_total
        - before.chance_faults_total;
    assert!(faults > 5000, "{stats:?}");
    let stored = stats.stored_pages;
    let begin = Instant::now();
    let change = Change::Unmap { range: memory.clone() };
    let cpu = cpu_time();
    let follow = world.engine.before(SPACE, &change);
    let kernel = Instant::now();
    assert_eq!((sys::unmap(&memory), follow), (0, Follow::Return));
    let kernel = kernel.elapsed();
    world.engine.after(SPACE, &change, 0);
    let released = begin.elapsed() - kernel;
    let cpu = cpu_time() - cpu;
    let _ = writeln!(
        io::stderr(),
        "fill {:.2} us/page; {faults} random faults, {:.2} us each, in the reader {:?}; \
         unmap of {stored} stored pages {} ns each besides the kernel's {:?}, \
         {} ns of processor with it",
        filled.as_secs_f64() * 1e6 / count as f64,
        elapsed.as_secs_f64() * 1e6 / faults as f64,
        stats.latency,
        released.as_nanos() as u64 / stored.max(1),
        kernel,
        cpu.as_nanos() as u64 / stored.max(1),
    );
    world.check();
}
