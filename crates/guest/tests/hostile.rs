//! Peers that send something else, nothing, or come by the thousand.
//!
//! What is missing for a test is told in a line that begins with `SKIPPED:`.

mod common;
mod vmm;

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use common::{SEED, serves, world};
use vmm::first_word;
use zfold_guest::NoOrigin;
use zfold_testing::{skip, wait_for, wait_until};

/// Not a test: the process of a stand-in. Without its environment it does nothing.
#[test]
fn stand_in() {
    vmm::inside::run();
}

/// The descriptor is the peer's, too, which has its reads wait again and again.
#[test]
fn peers_whose_reads_wait_are_served_and_end() {
    let world = world(64, 1, Duration::from_secs(600));
    // A read of one of them would most likely wait when it is killed.
    for _ in 0..10 {
        let Some(mut guest) = world.vmm("waiting") else { return skip("no userfaultfd") };
        assert_eq!(guest.ask(&format!("verify {SEED} 0 {} 7", world.pages)), "right");
        for page in 0..64 {
            assert_eq!(guest.ask(&format!("discard {page} 1")), "ok");
            assert_eq!(guest.ask(&format!("read {page}")), "0");
        }
        guest.kill();
        world.has_guests(0);
    }
}

fn is_hung_up_on(stream: &mut UnixStream) -> bool {
    stream.read(&mut [0]).is_ok_and(|len| len == 0)
}

#[test]
fn what_is_no_offer_is_hung_up_on() {
    let (patient, short) = (
        world(64, 8, Duration::from_secs(600)),
        // Long enough for a peer that means to say something.
        world(64, 8, Duration::from_secs(5)),
    );
    for (world, message, said) in [
        (&patient, "pipe", "not a userfaultfd"),
        (&patient, "two", "more descriptors than belong"),
        (&patient, "garbage", "not a list of regions"),
        (&short, "nofd", "it sent no userfaultfd"),
        (&short, "silent", "did not say in time"),
    ] {
        let Some(peer) = world.vmm(message) else { return skip("no userfaultfd") };
        world.hears(said);
        drop(peer);
        // There is one line a second.
        std::thread::sleep(Duration::from_millis(1100));
    }
    let mut endless = UnixStream::connect(&patient.socket).expect("connected");
    let sent = (0..1000).take_while(|_| endless.write_all(&[b'['; 4096]).is_ok());
    assert!(sent.count() < 1000, "it takes everything");
    patient.hears("does not end");
    for (world, failed) in [(&patient, 4), (&short, 2)] {
        wait_for(|| {
            let stats = world.server.stats();
            (stats.served.failed_handshakes_total >= failed).then_some(()).ok_or(Box::new(stats))
        });
        world.has_guests(0);
        serves(world);
    }
}

/// A userfaultfd without its own handshake answers every call alike, whether its address space is
/// there or not.
#[test]
fn a_userfaultfd_that_was_never_set_up_is_none() {
    let world = world(64, 1, Duration::from_secs(600));
    let Some(mut peer) = world.vmm("no-api") else { return skip("no userfaultfd") };
    world.hears("what it sent is not a userfaultfd");
    peer.kill();
    world.has_guests(0);
    assert_eq!(world.server.stats().served.held_total, 0);
    serves(&world);
}

#[test]
fn a_peer_that_speaks_in_drops_is_hung_up_on() {
    let world = world(64, 8, Duration::from_millis(300));
    let mut slow = UnixStream::connect(&world.socket).expect("connected");
    let said = (0..1000).take_while(|_| {
        std::thread::sleep(Duration::from_millis(500));
        slow.write_all(b"[").is_ok()
    });
    assert!(said.count() < 1000, "after 20 s it is still heard");
}

/// The oldest of them give way, so whoever comes is heard.
#[test]
fn silent_peers_keep_nobody_out() {
    let world = world(64, 1000, Duration::from_secs(600));
    let mut silent: Vec<_> =
        (0..40).map(|_| UnixStream::connect(&world.socket).expect("connected")).collect();
    assert!(is_hung_up_on(&mut silent[0]), "the oldest");
    serves(&world);
}

/// guest/G7: those without a place wait, and are served when there is one.
#[test]
fn guests_beyond_the_places_wait_for_one() {
    let world = world(64, 2, Duration::from_secs(600));
    let (Some(first), Some(second)) = (world.vmm("whole"), world.vmm("whole")) else {
        return skip("no userfaultfd");
    };
    world.has_guests(2);
    let mut third = world.vmm("whole").expect("as the two before");
    third.say("read 3");
    assert!(!third.answers_within(Duration::from_millis(200)), "there are two places");
    assert_eq!(world.server.stats().guests.len(), 2);
    drop(first);
    assert_eq!(third.hear(), first_word(SEED, 3).to_string());
    drop(second);
}

/// It is to be paused when it goes to sleep. What such an image holds nobody promises.
#[test]
fn a_guest_that_is_not_paused_when_it_sleeps_harms_nothing_but_that_image() {
    let world = world(256, 8, Duration::from_secs(600));
    let Some(mut guest) = world.vmm("whole") else { return skip("no userfaultfd") };
    let difference = tempfile::tempfile().expect("a file");
    difference.set_len(world.bytes()).expect("a length");
    let mut slept = 0;
    wait_until("it has slept", || {
        guest.say(&format!("hammer {SEED} 20000 1"));
        while !guest.answers_within(Duration::from_millis(1)) {
            match world.server.origin(1) {
                Ok(origin) => {
                    let imported = world.images.import_over("asleep", &difference, &origin, None);
                    imported.expect("imported");
                    world.images.remove("asleep").expect("removed");
                    slept += 1;
                }
                Err(error) => assert_eq!(error, NoOrigin::Busy(1)),
            }
        }
        assert_eq!(guest.hear(), "right");
        slept > 0
    });
    assert_eq!(world.server.origin(2).expect_err("there is none"), NoOrigin::Missing(2));
    serves(&world);
}
