//! How long it takes to save a machine of cloud-hypervisor, to restore it, and to put in all of its
//! pages on demand, as a stand-in asks for them one after another.
//!
//! `ZFOLD_GUEST_MEMORY` names a memory file. Without it, the memory is that of the tests, which is
//! hardly like any other.

use std::fs::File;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use zfold_guest::{Images, OnDemand, Progress, Restore, images_options, receive, restore};
use zfold_store::CodecKind;
use zfold_testing::machines::{self, COMPLETE, DONE, How, Machine, Slot, config, memory};

const PAGE: u64 = 4096;

/// How often each is done.
const ROUNDS: usize = 5;

fn main() {
    let images = Arc::new(Images::new(&images_options(CodecKind::Lz4.into(), None)).expect("open"));
    let machine = machine();
    let folder = tempfile::tempdir().expect("a folder");
    println!("a machine of {} MiB, milliseconds of {ROUNDS} rounds:", machine.pages() / 256);
    let rounds = |what: &str, work: &dyn Fn(&Path) -> Duration| {
        let times = (0..ROUNDS).map(|round| {
            let path = folder.path().join(format!("{what}-{round}"));
            work(&path).as_millis().to_string()
        });
        println!("{what}: {}", times.collect::<Vec<_>>().join(" "));
    };
    rounds("saved", &|path| {
        // It may not be there yet.
        let _ = images.remove("web");
        save(&images, &machine, path)
    });
    let held = images.stats().held_bytes() as f64 / f64::from(1 << 20);
    println!("held: {held:.1} MiB");
    rounds("restored", &|path| restored(&images, path, false).0);
    rounds("restored, until it may run on demand", &|path| restored(&images, path, true).0);
    rounds("restored, until all pages were asked for", &|path| restored(&images, path, true).1);
}

fn machine() -> Machine {
    let Some(path) = std::env::var_os("ZFOLD_GUEST_MEMORY") else { return Machine::new(65_496, 1) };
    let mut from = File::open(path).expect("a file");
    let bytes = from.metadata().expect("a length").len();
    let mut file = memory(bytes);
    std::io::copy(&mut from, &mut file).expect("copied");
    let slots = vec![Slot { number: 0, gpa: 0, bytes, from: 0, file }];
    Machine { config: config(&slots, ""), slots, state: vec![b' '; 200_000] }
}

fn save(images: &Arc<Images>, machine: &Machine, path: &Path) -> Duration {
    let listener = UnixListener::bind(path).expect("bound");
    let began = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            let stream = listener.accept().expect("a sender").0;
            let named = ("web", None);
            receive(stream, images, named, &Progress::default(), |_| Ok(())).expect("received");
        });
        assert_eq!(machine.send(path, COMPLETE), DONE);
    });
    began.elapsed()
}

/// Returns how long it took until the machine might run, and until it had all pages.
fn restored(images: &Arc<Images>, path: &Path, on_demand: bool) -> (Duration, Duration) {
    let listener = UnixListener::bind(path).expect("bound");
    let mut how = Restore::default();
    (how.resume, how.on_demand) = (true, on_demand);
    let stand_in = How { asks: on_demand.then_some(1), refuses: None };
    let (began, demand) = (Instant::now(), OnDemand::default());
    thread::scope(|scope| {
        let receiving = scope.spawn(move || machines::receive(&listener, stand_in));
        let tell = |line: &str| eprintln!("{line}");
        restore(images, "web", path, how, (&demand, None, tell)).expect("restored");
        let runs = began.elapsed();
        let received = receiving.join().expect("no panic").expect("a machine");
        if let Some(mut faults) = received.faults {
            for slot in &received.machine.slots {
                let pages = (0..slot.bytes).step_by(PAGE as usize);
                pages.for_each(|at| assert_eq!(faults.ask(slot.gpa + at, PAGE), DONE));
            }
        }
        (runs, began.elapsed())
    })
}
