//! How fast guests are restored: the first page, any page, and all of them; and what images take.
//!
//! `ZFOLD_GUEST_MEMORY` names a memory file, and `ZFOLD_GUEST_LATER` another state of the same
//! guest. Without them, the memory is that of the tests, which is hardly like any other.

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "../tests/vmm/mod.rs"]
mod vmm;

use std::fs::File;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::accept;
use rustix::time::{ClockId, clock_gettime};
use vmm::{PAGE, Vmm, page};
use zfold_guest::{FrontOptions, Image, Images, Server, ServerOptions, images_options};
use zfold_store::CodecKind;

/// Guests whose first page is timed.
const GUESTS: usize = 40;

fn main() {
    if std::env::var_os("ZFOLD_STAND_IN").is_some() {
        return vmm::inside::run();
    }
    let images = Arc::new(Images::new(&images_options(CodecKind::Lz4.into(), None)).expect("open"));
    let (file, pages) = memory();
    let (wall, cpu) = timed(|| {
        images.import("web", &file, None).expect("imported");
    });
    let mib = pages as f64 * PAGE as f64 / f64::from(1 << 20);
    println!("import of {mib:.0} MiB: {wall:.0} ms, {cpu:.0} ms of processor, {}", held(&images));
    if let Some(later) = std::env::var_os("ZFOLD_GUEST_LATER") {
        let later = File::open(later).expect("a file");
        let import = || images.import("later", &later, Some("web")).expect("imported").stored_pages;
        let mut stored = 0;
        let (wall, cpu) = timed(|| stored = import());
        println!(
            "difference: {stored} pages, {wall:.0} ms, {cpu:.0} ms of processor, {}",
            held(&images)
        );
        images.remove("later").expect("removed");
    }
    let tell = |line: &str| eprintln!("{line}");
    let server = Server::new(Arc::clone(&images), ServerOptions::default(), tell);
    let server = Arc::new(server.expect("a server"));
    let folder = tempfile::tempdir().expect("a folder");
    let link = accept(&server, folder.path(), FrontOptions::default(), tell);
    let socket = link.listen("web").expect("listening");
    let start = |message: &str| Vmm::start(&socket, pages, message);

    let mut first: Vec<u64> = (0..GUESTS)
        .map(|_| start("first").expect("userfaultfd").ask("first").parse().expect("a number"))
        .collect();
    println!("connection to first page: {}", quantiles(&mut first));

    let all = pages / 2;
    let mut guest = start("whole").expect("as before");
    let times = guest.ask(&format!("time 0 {all}"));
    let mut times: Vec<u64> =
        times.split(' ').map(|time| time.parse().expect("a number")).collect();
    // What was there beforehand took no fault.
    times.retain(|time| *time > 1500);
    println!("a touch that faulted ({}): {}", times.len(), quantiles(&mut times));
    drop(guest);

    let image = images.claim("web").expect("an image");
    working_set(&server, &image, pages, &start);
    image.forget();

    let before = resident();
    let guests: Vec<Vmm> = (0..GUESTS).filter_map(|_| start("first")).collect();
    let each = resident().saturating_sub(before) / GUESTS as u64;
    println!("{} guests at a time: {each} KiB of the server for each", guests.len());
}

/// Records all of an image, and has it put in.
fn working_set(server: &Server, image: &Image, pages: u64, start: &dyn Fn(&str) -> Option<Vmm>) {
    image.record(true);
    let mut guest = start("whole").expect("as before");
    let mut times: Vec<u64> = guest
        .ask(&format!("time 0 {}", pages / 16))
        .split(' ')
        .map(|time| time.parse().expect("a number"))
        .collect();
    println!("the same without read-ahead: {}", quantiles(&mut times));
    (0..pages).for_each(|number| touch(&mut guest, number));
    drop(guest);
    image.record(false);
    let before = server.stats();
    let wanted = before.given.beforehand_pages_total + image.working_set_pages();
    let (wall, cpu) = timed(|| {
        let guest = start("whole").expect("as before");
        while server.stats().given.beforehand_pages_total < wanted {
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(guest);
    });
    let stats = server.stats();
    let copied = stats.given.copied_pages_total - before.given.copied_pages_total;
    let zeros = stats.given.zero_pages_total - before.given.zero_pages_total;
    println!(
        "working set, with the start of its guest: {copied} pages and {zeros} of zeros, {wall:.0} \
         ms, {cpu:.0} ms of processor ({:.2} us for each page that is not zeros)",
        cpu * 1e3 / copied as f64
    );
}

/// Returns the resident memory of this process in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("readable");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn touch(guest: &mut Vmm, number: u64) {
    if number.is_multiple_of(64) {
        guest.ask(&format!("time {number} {}", number + 64));
    }
}

/// Returns the memory file, and its pages.
fn memory() -> (File, u64) {
    if let Some(path) = std::env::var_os("ZFOLD_GUEST_MEMORY") {
        let file = File::open(path).expect("a file");
        let len = file.metadata().expect("a length").len();
        return (file, len / PAGE as u64 / 64 * 64);
    }
    let mut file = tempfile::tempfile().expect("a file");
    let pages = 16_384;
    for number in 0..pages {
        file.write_all(&page(1, number)).expect("written");
    }
    (file, pages)
}

fn held(images: &Images) -> String {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let stats = images.store().stats();
    let held = stats.held_bytes();
    format!("{:.2} MiB of pages, {:.2} MiB held", mib(stats.pool.payload_bytes), mib(held))
}

/// Returns the milliseconds that something takes: by the clock, and of this process.
fn timed(work: impl FnOnce()) -> (f64, f64) {
    let used = || {
        let used = clock_gettime(ClockId::ProcessCPUTime);
        used.tv_sec as f64 * 1e3 + used.tv_nsec as f64 / 1e6
    };
    let (began, before) = (Instant::now(), used());
    work();
    (began.elapsed().as_secs_f64() * 1e3, used() - before)
}

fn quantiles(ns: &mut [u64]) -> String {
    ns.sort_unstable();
    let at = |share: f64| ns[((ns.len() - 1) as f64 * share) as usize] as f64 / 1e3;
    format!("p50 {:.1} us, p99 {:.1} us, most {:.1} us", at(0.5), at(0.99), at(1.0))
}
