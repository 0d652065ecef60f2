//! How fast pages leave a guest whose memory is a file, alone and while threads of the guest read
//! and write pages at random.
//!
//! `ZFOLD_GUEST_MEMORY` names a memory file of at least 64 MiB, for what is compressed; without it,
//! only pages of one word leave, which no codec sees.

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "../tests/vmm/mod.rs"]
mod vmm;

use std::time::{Duration, Instant};

use common::World;
use rustix::time::{ClockId, clock_gettime};

const PAGES: u64 = 16_384;

/// Accesses of each thread of a guest.
const ROUNDS: u64 = 100_000;

const RUNS: u64 = 5;

/// Waits until pages have left, and no more than the limit is there.
fn settle(world: &World, limit: u64) {
    loop {
        let stats = world.server.stats();
        if stats.given.left_pages_total > 0 && stats.served.resident_pages <= limit {
            return;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn main() {
    if std::env::var_os("ZFOLD_STAND_IN").is_some() {
        return vmm::inside::run();
    }
    let mut kinds = vec![("of one word", "numbered")];
    if std::env::var_os("ZFOLD_GUEST_MEMORY").is_some() {
        kinds.push(("of the memory file, by LZ4", "filled"));
    }
    for (name, message) in kinds {
        for _ in 0..RUNS {
            alone(name, message);
        }
        for seed in 0..RUNS {
            hammered(name, message, seed);
        }
    }
}

/// All pages of a guest that does nothing leave.
fn alone(name: &str, message: &str) {
    let world = World::zeros(PAGES, 1);
    let began = Measured::now();
    // It has been there in full for a moment when it can be asked.
    let guest = world.vmm(message).expect("userfaultfd");
    let before = Measured::now();
    settle(&world, 1);
    let used = Measured::now();
    let left = world.server.stats().given.left_pages_total;
    drop(guest);
    world.has_guests(0);
    println!(
        "{left} pages {name}: {}, {:.0} ms by the clock from its start on, {:.0} from its message",
        per_page(used.cpu - began.cpu, left),
        (used.wall - began.wall).as_secs_f64() * 1e3,
        (used.wall - before.wall).as_secs_f64() * 1e3,
    );
}

/// An eighth of the memory stays while threads read and write.
fn hammered(name: &str, message: &str, seed: u64) {
    let limit = PAGES / 8;
    let world = World::zeros(PAGES, limit);
    let mut guest = world.vmm(message).expect("userfaultfd");
    settle(&world, limit);
    let (began, before) = (Measured::now(), world.server.stats().given);
    let told = guest.ask(&format!("hammer-{message} {ROUNDS} {seed}"));
    let (used, stats) = (Measured::now(), world.server.stats());
    assert_eq!(told, "right");
    let after = stats.given;
    let left = after.left_pages_total - before.left_pages_total;
    println!(
        "{left} pages {name} under threads that use them: {}; {} came back, {} were written to \
         before they left; {} of {limit} are resident; a fault waited {:.1} us (p50), {:.1} (p99); \
         {:.0} ms by the clock",
        per_page(used.cpu - began.cpu, left),
        after.faults_total - before.faults_total,
        after.stayed_pages_total - before.stayed_pages_total,
        stats.served.resident_pages,
        stats.served.fault_p50_ns as f64 / 1e3,
        stats.served.fault_p99_ns as f64 / 1e3,
        (used.wall - began.wall).as_secs_f64() * 1e3,
    );
}

struct Measured {
    wall: Instant,
    cpu: Duration,
}

impl Measured {
    fn now() -> Self {
        let used = clock_gettime(ClockId::ProcessCPUTime);
        let cpu = Duration::new(used.tv_sec as u64, used.tv_nsec as u32);
        Self { wall: Instant::now(), cpu }
    }
}

fn per_page(cpu: Duration, pages: u64) -> String {
    let seconds = cpu.as_secs_f64();
    let pages = pages as f64;
    format!("{:.2} us of processor each, {:.0} a second", seconds * 1e6 / pages, pages / seconds)
}
