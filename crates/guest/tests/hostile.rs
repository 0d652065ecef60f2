//! Peers that send something else, nothing, or come by the thousand.
//!
//! What is missing for a test is told in a line that begins with `SKIPPED:`.

mod common;
mod vmm;

use std::io::{IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd, IntoRawFd as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use common::{SEED, World};
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use vmm::first_word;
use zfold_guest::{NoOrigin, ServerOptions, images_options};
use zfold_store::CodecKind;
use zfold_testing::{skip, wait_for};

/// Not a test: the process of a stand-in. Without its environment it does nothing.
#[test]
fn stand_in() {
    vmm::inside::run();
}

fn world(pages: u64, places: usize, handshake: Duration) -> World {
    let mut options = ServerOptions::default();
    options.places = places;
    options.handshake = handshake;
    World::of(pages, &images_options(CodecKind::Lz4.into(), None), options)
}

/// Checks that a guest that does all right is served; false if there can be none.
fn serves(world: &World) -> bool {
    let Some(mut guest) = world.vmm("whole") else {
        skip("hostile", "no userfaultfd");
        return false;
    };
    assert_eq!(guest.ask(&format!("verify {SEED} 0 {} 7", world.pages)), "right");
    true
}

/// The descriptor is the peer's, too, which has its reads wait again and again.
#[test]
fn peers_whose_reads_wait_are_served_and_end() {
    let world = world(64, 1, Duration::from_secs(600));
    // A read of one of them would most likely wait when it is killed.
    for _ in 0..10 {
        let Some(mut guest) = world.vmm("waiting") else {
            return skip("peers_whose_reads_wait_are_served_and_end", "no userfaultfd");
        };
        assert_eq!(guest.ask(&format!("verify {SEED} 0 {} 7", world.pages)), "right");
        for page in 0..64 {
            assert_eq!(guest.ask(&format!("discard {page} 1")), "ok");
            assert_eq!(guest.ask(&format!("read {page}")), "0");
        }
        guest.kill();
        world.has_guests(0);
    }
}

/// Returns a socket that waits an hour when it is closed last: it has data that nobody takes.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let mut stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
    let (other, _) = listener.accept().expect("accepted");
    set_socket_linger(&stream, Some(Duration::from_secs(3600))).expect("set");
    stream.set_nonblocking(true).expect("set");
    while matches!(stream.write(&[1; 65536]), Ok(1..)) {}
    stream.set_nonblocking(false).expect("set");
    (stream, other)
}

/// apart/T1: whatever it sends in place of a userfaultfd, beside one, or where nobody reads it.
#[test]
fn a_peer_whose_descriptors_cannot_be_closed_keeps_nobody_out() {
    let world = world(64, 8, Duration::from_secs(2));
    let text = br#"[{"base_host_virt_addr":1048576,"size":4096,"offset":0,"page_size":4096}]"#;
    // More than there are places, and more than there are handshakes.
    for number in 0..40 {
        let (stream, other) = lingering();
        let peer = UnixStream::connect(&world.socket).expect("connected");
        let (text, copies) = match number % 4 {
            0 => (&text[..], 1),
            1 => (&text[..], 200),
            2 => (&b"GET / HTTP/1.1"[..], 3),
            _ => (&b"["[..], 1),
        };
        let fds: Vec<_> = (0..copies).map(|_| stream.as_fd()).collect();
        send(&peer, text, &fds);
        send(&peer, b" ", &fds);
        // Open until the process ends: nobody takes the data.
        let _ = other.into_raw_fd();
        // If this is the last to close it, this waits, until the process ends.
        std::thread::spawn(move || drop(stream));
    }
    let began = Instant::now();
    serves(&world);
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    world.has_guests(0);
    wait_for(|| {
        let failed = world.server.stats().served.failed_handshakes_total;
        (failed == 40).then_some(()).ok_or(failed)
    });
    world.hears("since the last line");
}

fn send(peer: &UnixStream, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(200))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    assert!(beside.push(SendAncillaryMessage::ScmRights(fds)));
    // The server may have hung up.
    let _ = sendmsg(peer, &[IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL);
}

fn is_hung_up_on(stream: &mut UnixStream) -> bool {
    stream.read(&mut [0]).is_ok_and(|len| len == 0)
}

#[test]
fn what_is_no_offer_is_hung_up_on() {
    let (patient, short) = (
        world(64, 8, Duration::from_secs(600)),
        // Long enough for a peer that means to say something.
        world(64, 8, Duration::from_secs(2)),
    );
    for (world, message, said) in [
        (&patient, "pipe", "not a userfaultfd"),
        (&patient, "two", "more descriptors than belong"),
        (&patient, "garbage", "not a list of regions"),
        (&short, "nofd", "it sent no userfaultfd"),
        (&short, "silent", "did not say in time"),
    ] {
        let Some(peer) = world.vmm(message) else {
            return skip("what_is_no_offer_is_hung_up_on", "no userfaultfd");
        };
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
    let Some(mut peer) = world.vmm("no-api") else {
        return skip("a_userfaultfd_that_was_never_set_up_is_none", "no userfaultfd");
    };
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
        return skip("guests_beyond_the_places_wait_for_one", "no userfaultfd");
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

#[test]
fn thousands_of_connections_are_no_harm() {
    let world = world(64, 8, Duration::from_millis(500));
    for _ in 0..3000 {
        // The queue may be full.
        drop(UnixStream::connect(&world.socket));
    }
    wait_for(|| {
        let failed = world.server.stats().served.failed_handshakes_total;
        (failed >= 2000).then_some(()).ok_or(failed)
    });
    serves(&world);
}

/// It is to be paused when it goes to sleep. What such an image holds nobody promises.
#[test]
fn a_guest_that_is_not_paused_when_it_sleeps_harms_nothing_but_that_image() {
    let world = world(256, 8, Duration::from_secs(600));
    let Some(mut guest) = world.vmm("whole") else {
        return skip("a guest that is not paused", "no userfaultfd");
    };
    let difference = tempfile::tempfile().expect("a file");
    difference.set_len(world.bytes()).expect("a length");
    guest.say(&format!("hammer {SEED} 20000 1"));
    let mut slept = 0;
    while !guest.answers_within(Duration::from_millis(1)) {
        match world.server.origin(1) {
            Ok(origin) => {
                world.images.import_over("asleep", &difference, &origin).expect("imported");
                world.images.remove("asleep").expect("removed");
                slept += 1;
            }
            Err(error) => assert_eq!(error, NoOrigin::Busy(1)),
        }
    }
    assert_eq!(guest.hear(), "right");
    assert!(slept > 0);
    assert_eq!(world.server.origin(2).expect_err("there is none"), NoOrigin::Missing(2));
    serves(&world);
}
