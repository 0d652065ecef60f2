//! Pages leave guests whose memory is a file, and come back as they were.
//!
//! What is missing for a test is told in a line that begins with `SKIPPED:`.

mod common;
mod vmm;

use std::time::{Duration, Instant};

use common::{SEED, World};
use vmm::{Vmm, first_word};
use zfold_guest::{NoOrigin, ServerOptions, images_options};
use zfold_store::CodecKind;
use zfold_testing::{skip, wait_for, wait_until};

/// Not a test: the process of a stand-in. Without its environment it does nothing.
#[test]
fn stand_in() {
    vmm::inside::run();
}

/// Returns a server with a limit of so many pages for its guests.
fn world(pages: u64, limit: u64) -> World {
    let mut options = ServerOptions::default();
    options.resident_limit = Some(limit << 12);
    World::of(pages, &images_options(CodecKind::Lz4.into(), None), options)
}

/// Returns a stand-in, or ends the test where there can be none.
macro_rules! vmm {
    ($world:expr, $message:expr) => {
        match $world.vmm($message) {
            Some(vmm) => vmm,
            None => return skip(&format!("a guest that says {}", $message), "no userfaultfd"),
        }
    };
}

fn verify(world: &World, vmm: &mut Vmm) {
    assert_eq!(vmm.ask(&format!("verify {SEED} 0 {} 7", world.pages)), "right");
}

/// Waits until all guests together have so many pages at most.
fn shrinks(world: &World, limit: u64) {
    wait_for(|| {
        let served = world.server.stats().served;
        (served.resident_pages <= limit).then_some(()).ok_or(served)
    });
}

#[test]
fn what_left_comes_back_as_it_was() {
    let world = world(1024, 128);
    let mut guest = vmm!(world, "memfd");
    for number in (0..1024).step_by(5) {
        assert_eq!(guest.ask(&format!("write {number} {}", number + 7)), "ok");
    }
    shrinks(&world, 128);
    let stats = world.server.stats();
    assert!(stats.served.out_pages > 0 && stats.given.left_pages_total > 0, "{stats:?}");
    for number in 0..1024 {
        let right = if number % 5 == 0 { number + 7 } else { first_word(SEED, number) };
        assert_eq!(guest.ask(&format!("read {number}")), right.to_string(), "page {number}");
    }
    let stats = world.server.stats();
    assert!(stats.given.returned_pages_total > 0, "{stats:?}");
    // A difference would lack what is out.
    assert!(matches!(world.server.origin(1), Err(NoOrigin::Left(1))));
}

#[test]
fn what_is_as_in_the_image_costs_nothing_when_it_left() {
    let world = world(1024, 64);
    let mut guest = vmm!(world, "memfd");
    verify(&world, &mut guest);
    shrinks(&world, 64);
    verify(&world, &mut guest);
    let stats = world.server.stats();
    assert!(stats.given.left_pages_total > 1500, "{stats:?}");
    assert_eq!((stats.served.out_pages, stats.given.returned_pages_total), (0, 0));
    assert_eq!(world.images.absent_stats().stored_pages, 0);
    world.server.origin(1).expect("nothing is missing in a difference");
}

/// Zeros that nobody asked for would take the place of pages that somebody uses.
#[test]
fn zeros_that_take_memory_are_put_in_as_they_are_asked_for() {
    let world = World::zeros(4096, 128);
    let mut guest = vmm!(world, "memfd");
    guest.ask("time 0 4096");
    shrinks(&world, 128);
    let given = world.server.stats().given;
    // A page that left before it was read is asked for twice.
    assert_eq!(given.faults_total, given.zero_pages_total, "{given:?}");
    assert!(given.faults_total >= 4096, "{given:?}");
    assert!(given.left_pages_total >= 4096 - 128, "{given:?}");
}

/// Returns how long pages are to leave at least, by `ZFOLD_EVICT_SECONDS`.
fn told() -> Option<Duration> {
    let seconds = std::env::var("ZFOLD_EVICT_SECONDS").ok()?;
    Some(Duration::from_secs(seconds.parse().expect("ZFOLD_EVICT_SECONDS is a number")))
}

/// Threads that read, write and discard, and know what each page must hold.
#[test]
fn no_write_is_lost_while_a_hundred_thousand_pages_leave() {
    let world = world(512, 32);
    let until = Instant::now() + told().unwrap_or_default();
    // How many leave in a while depends on how busy the machine is.
    let left = || world.server.stats().given.left_pages_total;
    for seed in (1..).take_while(|_| left() < 100_000 || Instant::now() < until) {
        let mut guest = vmm!(world, "memfd");
        assert_eq!(guest.ask(&format!("hammer {SEED} 200000 {seed}")), "right");
    }
    let given = world.server.stats().given;
    println!("{given:?}");
    assert!(given.left_pages_total >= 100_000, "{given:?}");
    assert!(given.returned_pages_total > 10_000 && given.discards_total > 1000, "{given:?}");
}

/// A processor of KVM that counts in eight pages, all of which leave all the time.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_virtual_processor_loses_no_write() {
    let world = world(64, 4);
    let mut guest = vmm!(world, "memfd");
    let time = told().unwrap_or(Duration::from_secs(3));
    let told = guest.ask(&format!("processor {}", time.as_millis()));
    if let Some(why) = told.strip_prefix("without: ") {
        return skip("a virtual processor", format!("KVM gives none: {why}"));
    }
    assert!(told.starts_with("right after "), "{told}");
    let given = world.server.stats().given;
    println!("{told} rounds: {given:?}");
    assert!(given.left_pages_total > 100, "{given:?}");
}

#[test]
fn guests_that_do_nothing_leave_the_room_to_those_that_do() {
    let world = world(1024, 1200);
    let (mut idle, mut busy) = (vmm!(world, "memfd"), vmm!(world, "memfd"));
    verify(&world, &mut idle);
    verify(&world, &mut busy);
    for _ in 0..20 {
        verify(&world, &mut busy);
    }
    let guests = world.server.stats().guests;
    assert!(guests[1].resident_pages > 2 * guests[0].resident_pages, "{guests:?}");
    verify(&world, &mut idle);
}

#[test]
fn the_end_of_a_server_gives_guests_all_back() {
    let world = world(512, 64);
    let mut guest = vmm!(world, "memfd");
    assert_eq!(guest.ask("write 5 77"), "ok");
    verify_all_but(&mut guest, 5);
    shrinks(&world, 64);
    assert_eq!(world.server.release(zfold_testing::wait::PATIENCE), 0);
    verify_all_but(&mut guest, 5);
    assert_eq!(guest.ask("read 5"), "77");
    assert_eq!(world.images.absent_stats().stored_pages, 0);
}

fn verify_all_but(guest: &mut Vmm, number: u64) {
    assert_eq!(guest.ask(&format!("verify {SEED} 0 {number} 1")), "right");
    assert_eq!(guest.ask(&format!("verify {SEED} {} 512 1", number + 1)), "right");
}

/// All is in the file and nothing mapped at first, so that threads ask for pages just before these
/// leave.
#[test]
fn a_page_that_leaves_when_it_is_to_be_mapped_is_not_taken_for_somebody_elses() {
    let world = world(4096, 512);
    for seed in 0..4 {
        let mut guest = vmm!(world, "numbered");
        assert_eq!(guest.ask(&format!("hammer-numbered 4000 {seed}")), "right");
        assert!(!world.heard("another process"));
    }
}

/// Another mapping sees zeros where a page has left; the guest does not, and nothing leaves then.
#[test]
fn what_others_put_in_the_place_of_a_page_is_not_what_the_guest_reads() {
    let world = world(512, 64);
    let mut guest = vmm!(world, "memfd");
    for number in 0..512 {
        assert_eq!(guest.ask(&format!("write {number} 9")), "ok");
    }
    shrinks(&world, 64);
    let touched: Vec<_> =
        (0..512).filter(|page| guest.ask(&format!("other {page}")) == "0").collect();
    assert!(!touched.is_empty());
    for number in 0..512 {
        assert_eq!(guest.ask(&format!("read {number}")), "9", "page {number}");
    }
    world.hears("another process maps its memory");
}

/// Each is served all the same.
#[test]
fn guests_out_of_which_nothing_can_be_taken_are_named() {
    let world = world(512, 64);
    let mut guest = vmm!(world, "whole");
    verify(&world, &mut guest);
    world.hears("no page of guest 1");
    world.hears("did not hand over a file");
    // What it has put into its file is not what it has mapped.
    let mut private = vmm!(world, "private");
    verify(&world, &mut private);
    assert_eq!(private.ask("write 3 8"), "ok");
    verify(&world, &mut guest);
    assert_eq!(private.ask("read 3"), "8");
    wait_until("nothing left", || world.server.stats().given.left_pages_total == 0);
}
