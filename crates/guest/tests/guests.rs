//! Guests that are restored: every page they read is right, whatever they do.
//!
//! What is missing for a test is told in a line that begins with `SKIPPED:`.

mod common;
mod vmm;

use std::time::{Duration, Instant};

use common::{SEED, World};
use vmm::{Vmm, first_word};
use zfold_guest::{FrontOptions, GuestState, GuestStats, NoOrigin, ServerOptions, images_options};
use zfold_store::CodecKind;
use zfold_testing::{skip, wait_for, wait_until};

/// Not a test: the process of a stand-in. Without its environment it does nothing.
#[test]
fn stand_in() {
    vmm::inside::run();
}

/// Returns a stand-in, or ends the test where there can be none.
macro_rules! vmm {
    ($world:expr, $message:expr) => {
        match $world.vmm($message) {
            Some(vmm) => vmm,
            None => return skip("no userfaultfd"),
        }
    };
}

fn verify(world: &World, vmm: &mut Vmm, step: u64) {
    let all = format!("verify {SEED} 0 {} {step}", world.pages);
    assert_eq!(vmm.ask(&all), "right");
}

#[test]
fn every_page_is_right_in_order_and_out_of_it() {
    let world = World::new(3000);
    for step in [1, 2999, 7] {
        let mut guest = vmm!(world, "whole");
        verify(&world, &mut guest, step);
        verify(&world, &mut guest, 1);
    }
    world.has_guests(0);
    let stats = world.server.stats();
    assert_eq!((stats.served.guests_total, stats.served.held_total), (3, 0));
    // Three guests of 3000 pages, a quarter of them zeros, each put in once.
    assert_eq!((stats.given.copied_pages_total, stats.given.zero_pages_total), (3 * 2250, 3 * 750));
    assert!(stats.given.faults_total < 9000 && stats.served.fault_p50_ns > 0, "{stats:?}");
}

/// Pitfall 15, and the names that earlier versions use.
#[test]
fn a_message_may_come_in_pieces_and_with_the_older_name() {
    let world = World::new(512);
    for message in ["pieces", "old"] {
        let mut guest = vmm!(world, message);
        verify(&world, &mut guest, 1);
    }
}

/// Pitfalls 1, 2 and 3: faults, discards and writes of several threads at a time, for as long as
/// `ZFOLD_MARKS_SECONDS` says.
#[test]
fn discards_while_faults_wait() {
    let world = World::new(256);
    let least = std::env::var("ZFOLD_MARKS_SECONDS").map_or(0, |text| text.parse().unwrap());
    let ends = Instant::now() + Duration::from_secs(least);
    for seed in 0.. {
        if seed >= 3 && Instant::now() >= ends {
            break;
        }
        let mut guest = vmm!(world, "whole");
        assert_eq!(guest.ask(&format!("hammer {SEED} 20000 {seed}")), "right");
        let discards =
            || world.server.stats().guests.last().map(|guest| guest.given.discards_total);
        wait_until("a discard was told", || discards() > Some(0));
    }
}

#[test]
fn what_a_guest_discards_is_zeros_whether_it_was_there_or_not() {
    let world = World::new(256);
    let mut guest = vmm!(world, "whole");
    assert_eq!(guest.ask("read 3"), first_word(SEED, 3).to_string());
    // 100 to 107 were not touched before; 3 was.
    assert_eq!(guest.ask("discard 3 1"), "ok");
    assert_eq!(guest.ask("discard 100 8"), "ok");
    for page in [3, 100, 103, 107] {
        assert_eq!(guest.ask(&format!("read {page}")), "0", "page {page}");
    }
    assert_eq!(guest.ask("read 99"), first_word(SEED, 99).to_string());
    assert_eq!(guest.ask("read 108"), first_word(SEED, 108).to_string());
    // Discarded, written and discarded again.
    assert_eq!(guest.ask("write 3 9"), "ok");
    assert_eq!((guest.ask("read 3"), guest.ask("discard 3 1")), ("9".into(), "ok".into()));
    assert_eq!(guest.ask("read 3"), "0");
}

/// Sends a guest to sleep; returns how many pages are stored for it.
fn sleep(world: &World, guest: &mut Vmm, number: u64, name: &str) -> u64 {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("memory");
    assert_eq!(guest.ask(&format!("snapshot {}", path.display())), "ok");
    let origin = world.server.origin(number).expect("it is served");
    let file = std::fs::File::open(path).expect("a file");
    let imported = world.images.import_over(name, &file, &origin, None).expect("imported");
    guest.kill();
    imported.stored_pages
}

/// Restores a guest that sleeps.
fn awake(world: &World, name: &str) -> Vmm {
    let socket = world.link.listen(name).expect("listening");
    Vmm::start(&socket, world.pages, "whole").expect("as before")
}

/// Its difference is written without what it gave up, as `mincore` has it.
#[test]
fn a_guest_sleeps_as_a_difference_and_wakes_up_as_it_was() {
    let world = World::new(256);
    let mut guest = vmm!(world, "whole");
    // 7 and what comes with it is touched, and not written to.
    let does = ["write 5 77", "discard 100 8", "write 101 8", "read 7", "read 103"];
    does.iter().for_each(|command| drop(guest.ask(command)));
    let stored = sleep(&world, &mut guest, 1, "asleep");
    // 5, 101, and what was given up and was not zeros before.
    let zeros = (100..108).filter(|page| page % 8 > 1 && *page != 101).count() as u64;
    assert_eq!(stored, 2 + zeros);
    world.has_guests(0);
    let mut guest = awake(&world, "asleep");
    for (page, word) in [(5, "77"), (100, "0"), (101, "8"), (103, "0"), (107, "0")] {
        assert_eq!(guest.ask(&format!("read {page}")), word, "page {page}");
    }
    assert_eq!(guest.ask(&format!("verify {SEED} 6 100 1")), "right");
    assert_eq!(guest.ask(&format!("verify {SEED} 108 256 1")), "right");
    // Once more, upon that: 100 to 107 are zeros of its image now.
    assert_eq!((guest.ask("discard 5 1"), guest.ask("write 100 9")), ("ok".into(), "ok".into()));
    assert_eq!(sleep(&world, &mut guest, 2, "again"), 2);
    let mut guest = awake(&world, "again");
    assert_eq!((guest.ask("read 5"), guest.ask("read 100")), ("0".to_owned(), "9".to_owned()));
    assert_eq!((guest.ask("read 101"), guest.ask("read 103")), ("8".to_owned(), "0".to_owned()));
}

/// A balloon, and nothing else: no page of the guest was ever put in.
#[test]
fn a_page_of_2_mib_that_was_given_up_sleeps_as_zeros() {
    let world = World::new(4 * 512);
    let mut guest = vmm!(world, "huge");
    // One whole page, and a part of another.
    assert_eq!(
        (guest.ask("discard 512 512"), guest.ask("discard 1024 100")),
        ("ok".into(), "ok".into())
    );
    let stored = sleep(&world, &mut guest, 1, "asleep");
    assert_eq!(stored, 512 * 3 / 4);
    let mut guest = awake(&world, "asleep");
    assert_eq!(guest.ask(&format!("verify {SEED} 1024 2048 1")), "right");
    assert_eq!(guest.ask("read 700"), "0");
}

#[test]
fn a_guest_that_dies_leaves_nothing_behind() {
    let world = World::new(256);
    let mut guest = vmm!(world, "whole");
    verify(&world, &mut guest, 1);
    let refused = world.images.remove("web").expect_err("refused");
    assert!(refused.to_string().contains("a guest"), "{refused}");
    guest.kill();
    world.has_guests(0);
    world.link.close("web");
    world.images.remove("web").expect("removed");
    assert!(!world.images.contains("web"));
}

/// Earlier versions of Firecracker hung up once they had sent their message.
#[test]
fn a_guest_that_hangs_up_is_served_until_it_dies() {
    let world = World::new(512);
    let mut guest = vmm!(world, "whole");
    assert_eq!(guest.ask("hang-up"), "ok");
    verify(&world, &mut guest, 7);
    assert_eq!(world.server.stats().guests.len(), 1);
    guest.kill();
    world.has_guests(0);
}

/// The first guest of an image is recorded by itself; those behind it start from what it touched.
#[test]
fn a_recorded_working_set_is_there_before_it_is_asked_for() {
    let mut options = ServerOptions::default();
    options.records_first = true;
    let world = World::with(2048, (options, FrontOptions::default()));
    let touched: Vec<u64> = (0..200).map(|n| n * 37 % 2048).collect();
    let mut first = vmm!(world, "whole");
    for page in &touched {
        first.ask(&format!("read {page}"));
    }
    // The last page is noted when its fault has been answered.
    wait_until("all is noted", || world.images.list()[0].working_set_pages == 200);
    drop(first);
    world.has_guests(0);
    let before = world.server.stats().given.faults_total;

    let mut second = vmm!(world, "whole");
    wait_until("it has the set", || {
        world.server.stats().guests.iter().any(|guest| guest.pages_left == 1848)
    });
    for page in &touched {
        second.ask(&format!("read {page}"));
    }
    assert_eq!(world.server.stats().given.faults_total, before, "none was asked for");
    verify(&world, &mut second, 1);
    assert_eq!(world.images.list()[0].working_set_pages, 200, "it was recorded, too");
    let image = world.images.claim("web").expect("an image");
    image.forget();
    assert_eq!(image.working_set_pages(), 0);
}

/// guest/G4: the end of the server.
/// It gets the working set first, then all others, and is let go.
#[test]
fn a_guest_that_is_filled_needs_nobody() {
    let mut options = ServerOptions::default();
    options.fill_rate = 64 << 20;
    let world = World::with(2000, (options, FrontOptions::default()));
    let mut guest = vmm!(world, "whole");
    assert_eq!(guest.ask("read 3"), first_word(SEED, 3).to_string());
    let began = std::time::Instant::now();
    assert_eq!((world.server.fill("other"), world.server.fill("web")), (0, 1));
    world.has_guests(0);
    assert!(began.elapsed() > Duration::from_millis(60), "the rate has no bound");
    // The rest comes from nobody; what it gives up is zeros.
    assert_eq!(guest.ask("discard 3 1"), "ok");
    assert_eq!(guest.ask("read 3"), "0");
    assert_eq!(guest.ask(&format!("verify {SEED} 4 2000 7")), "right");
    let stats = world.server.stats();
    assert!(stats.given.faults_total < 100, "{stats:?}");
    assert_eq!(stats.given.copied_pages_total + stats.given.zero_pages_total, 2000);
}

#[test]
fn a_guest_whose_regions_are_refused_is_killed_if_one_says_so() {
    let mut options = ServerOptions::default();
    options.kills_refused = true;
    let world = World::with(256, (options, FrontOptions::default()));
    let Some(mut guest) = world.vmm("beyond") else { return skip("no userfaultfd") };
    world.hears("is killed: ");
    world.has_guests(0);
    guest.kill();
}

/// Pitfall 14.
#[test]
fn a_page_of_2_mib_is_one_copy() {
    let world = World::new(4 * 512);
    let mut guest = vmm!(world, "huge");
    verify(&world, &mut guest, 1);
    drop(guest);
    world.has_guests(0);
    let stats = world.server.stats();
    assert_eq!((stats.given.faults_total, stats.given.copied_pages_total), (4, 4 * 512));
    // The stand-in maps one page more than it has.
    let Some(mut guest) = world.vmm("hugetlb") else {
        return skip("no huge page is reserved (vm.nr_hugepages)");
    };
    verify(&world, &mut guest, 1);
    assert_eq!(guest.ask("discard 512 512"), "ok");
    assert_eq!(guest.ask("read 700"), "0");
}

/// guest/G3 and G5, pitfall 19: a page that cannot be read is not answered, is reported, and comes
/// once it can be read.
#[test]
fn a_fault_that_waits_is_reported() {
    use std::os::unix::fs::FileExt as _;
    use std::sync::Arc;
    use zfold_store::backing::{Fault, Faults, FaultyBacking, MemoryBacking};
    use zfold_store::{BackingOptions, Selection};

    let backing = Arc::new(FaultyBacking::new(MemoryBacking::new(8 << 20), Faults::default(), 1));
    let store = images_options(CodecKind::Lz4.into(), None);
    let store = store.with_backing(BackingOptions::new(Arc::clone(&backing) as _));
    let mut options = ServerOptions::default();
    options.patience = Duration::from_millis(50);
    let world = World::of(256, &store, (options, FrontOptions::default()));
    world.images.store().writeback(&Selection::All, None).expect("written");
    backing.set(Faults::default().with(Fault::ReadError, 1000));
    let mut guest = vmm!(world, "whole");
    guest.say("read 3");
    world.hears("waits for page 3 of web");
    assert!(world.server.stats().guests[0].late);
    assert!(!guest.answers_within(Duration::from_millis(100)), "it was answered");
    // It cannot sleep either if its page has to be compared, and nothing is left of that.
    let origin = world.server.origin(1).expect("it is served");
    let file = tempfile::tempfile().expect("a file");
    file.set_len(world.bytes()).expect("a length");
    file.write_all_at(&[1; 4096], 3 * 4096).expect("written");
    let refused = world.images.import_over("asleep", &file, &origin, None).expect_err("refused");
    assert!(refused.to_string().contains("page 3 cannot be read"), "{refused}");
    assert!(!world.images.contains("asleep"));
    backing.heal();
    assert_eq!(guest.hear(), first_word(SEED, 3).to_string());
    wait_until("the fault is counted", || world.server.stats().given.faults_total == 1);
    let waited = Duration::from_nanos(world.server.stats().served.fault_p50_ns);
    // From when it was read, not from the attempt that went.
    assert!(waited >= Duration::from_millis(50), "{waited:?}");
    verify(&world, &mut guest, 1);
    wait_until("it is late no more", || !world.server.stats().guests[0].late);
}

/// Pitfall 18.
#[test]
fn memory_that_was_not_named_is_reported() {
    let world = World::new(128);
    let Some(mut guest) = Vmm::start(&world.socket, 256, "half") else {
        return skip("no userfaultfd");
    };
    assert_eq!(guest.ask("read 3"), first_word(SEED, 3).to_string());
    guest.say("read 203");
    world.hears("in none of the regions");
    assert!(!guest.answers_within(Duration::from_millis(100)), "it was answered");
    wait_until("it is counted", || world.server.stats().guests[0].given.strays_total == 1);
}

#[test]
fn a_guest_is_held_whose_regions_are_not_of_the_image() {
    let world = World::new(256);
    for (message, said) in [
        ("beyond", "connect to the image"),
        ("half", "524288 bytes together, but the image has 1048576"),
        ("unregistered", "not registered"),
        ("broken", "does not say where memory is"),
    ] {
        let mut guest = vmm!(world, message);
        world.hears(said);
        let number = wait_for(|| match world.server.stats().guests[..] {
            [GuestStats { state: GuestState::Held, number, .. }] => Ok(number),
            ref other => Err(other.to_vec()),
        });
        assert_eq!(world.server.origin(number).expect_err("refused"), NoOrigin::Held(number));
        if message != "unregistered" {
            // It waits, and does not read zeros.
            guest.say("read 3");
            assert!(!guest.answers_within(Duration::from_millis(200)), "it was answered");
        }
        guest.kill();
        world.has_guests(0);
    }
    assert_eq!(world.server.stats().served.held_total, 4);
}
