//! Servers that know nothing of each other.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use zfold_far::testing::conformance;
use zfold_far::{EngineError, FarBacking, FarOptions};
use zfold_store::backing::Backing as _;
use zfold_testing::redis::{Server, ready};
use zfold_testing::skip::has_loopback;

use crate::{connect, connect_with, missing, object, put, soon};

fn two(copies: usize) -> (Server, Server, String) {
    let (a, b) = (Server::start(&[]), Server::start(&[]));
    let place = format!("redis://{},{}/?copies={copies}", a.address(), b.address());
    (a, b, place)
}

#[test]
fn a_server_does_what_an_engine_must() {
    if !ready("a_server_does_what_an_engine_must") {
        return;
    }
    let server = Server::start(&[]);
    conformance(&*connect(&server.place()));
    let (_a, _b, place) = two(2);
    conformance(&*connect(&place));
}

#[test]
fn values_expire_when_their_owner_is_gone_and_are_removed_when_it_says_so() {
    let test = "values_expire_when_their_owner_is_gone_and_are_removed_when_it_says_so";
    if !ready(test) {
        return;
    }
    let (a, b, place) = two(2);
    let engine = connect(&place);
    put(&*engine, 0..10);
    assert_eq!((a.values(), b.values()), (10, 10), "a copy on each");
    for key in a.cli(&["KEYS", "*"]).lines() {
        assert!(key.starts_with("zfold:"), "{key}");
        let left: u64 = a.cli(&["TTL", key]).parse().expect("seconds");
        assert!((3000..=3600).contains(&left), "{key} lives for {left} s");
    }
    engine.delete(&(0..10).collect::<Vec<_>>(), soon()).expect("a deletion");
    assert_eq!((a.values(), b.values()), (0, 0));
}

#[test]
fn a_copy_that_is_gone_is_read_from_the_other_and_made_again() {
    if !ready("a_copy_that_is_gone_is_read_from_the_other_and_made_again") {
        return;
    }
    let (a, b, place) = two(2);
    let engine = connect(&place);
    put(&*engine, 0..40);
    a.cli(&["FLUSHALL"]);
    // Both servers are asked first by half of the readers at least in two rounds.
    assert_eq!(missing(&*engine, 0..40) + missing(&*engine, 0..40), 0);
    assert!(a.values() == 0 && b.values() == 40);
    engine.renew(soon()).expect("a renewal");
    assert_eq!(a.values(), 40, "where one was missed, all are looked at");
    assert_eq!((engine.copies().gone, engine.copies().made_total), (0, 40));
    b.cli(&["FLUSHALL"]);
    assert_eq!(missing(&*engine, 0..40), 0);
}

#[test]
fn a_server_that_stops_keeps_nobody_from_renewing_and_is_looked_at_when_it_is_back() {
    let test = "a_server_that_stops_keeps_nobody_from_renewing_and_is_looked_at_when_it_is_back";
    if !ready(test) {
        return;
    }
    let (a, b, place) = two(2);
    let engine = connect(&place);
    put(&*engine, 0..40);
    b.cli(&["FLUSHALL"]);
    a.stop();
    // Its copies cannot be had, and there are no others.
    let shortly = || Instant::now() + Duration::from_millis(700);
    let mut out = [0; 10];
    assert!(engine.get(0, 0, &mut out, shortly()).is_err());
    let begun = Instant::now();
    while engine.away() != [format!("redis at {}", a.address())] {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", engine.away());
        assert!(engine.get(0, 0, &mut out, shortly()).is_err());
    }
    // It tries until its deadline.
    let error = engine.renew(Instant::now() + Duration::from_secs(3));
    assert!(error.is_err(), "what is gone cannot be made again");
    assert_eq!(b.values(), 0);
    a.go_on();
    // Both are asked until that one answers.
    assert_eq!(missing(&*engine, 0..40), 0);
    assert!(engine.away().is_empty());
    engine.renew(soon()).expect("a renewal");
    assert_eq!(b.values(), 40, "those of the other are there again");
    assert_eq!((engine.copies().gone, engine.copies().made_total), (0, 40));
}

#[test]
fn of_single_copies_exactly_those_are_lost_that_were_there() {
    if !ready("of_single_copies_exactly_those_are_lost_that_were_there") {
        return;
    }
    let (a, b, place) = two(1);
    let engine = connect(&place);
    put(&*engine, 0..40);
    let (lost, kept) = (a.values(), b.values());
    assert!(lost > 0 && kept > 0 && lost + kept == 40, "dealt out: {lost} and {kept}");
    a.cli(&["FLUSHALL"]);
    assert_eq!(missing(&*engine, 0..40), lost);
    engine.renew(soon()).expect("a renewal");
    assert_eq!((engine.copies().gone, engine.copies().made_total), (lost as u64, 0));
    engine.delete(&(0..40).collect::<Vec<_>>(), soon()).expect("a deletion");
    assert_eq!(engine.copies().gone, 0);
}

#[test]
fn with_two_copies_a_server_that_stops_or_ends_holds_nobody_up() {
    if !ready("with_two_copies_a_server_that_stops_or_ends_holds_nobody_up") {
        return;
    }
    let (a, b) = (Server::start(&[]), Server::start(&[]));
    let mut c = Server::start(&[]);
    let place = format!("redis://{},{},{}/?copies=2", a.address(), b.address(), c.address());
    let engine = connect(&place);
    put(&*engine, 0..30);
    a.stop();
    assert_eq!(missing(&*engine, 0..30), 0);
    // Two of the three are enough for new objects.
    put(&*engine, 30..60);
    a.go_on();
    assert_eq!(missing(&*engine, 0..60), 0);
    c.kill();
    assert_eq!(missing(&*engine, 0..60), 0);
    put(&*engine, 60..90);
    assert_eq!(missing(&*engine, 0..90), 0);
    engine.renew(soon()).expect("nothing is old yet");
}

#[test]
fn a_server_that_stops_makes_calls_end_by_their_deadlines() {
    if !ready("a_server_that_stops_makes_calls_end_by_their_deadlines") {
        return;
    }
    let mut server = Server::start(&[]);
    let engine = connect(&server.place());
    put(&*engine, 0..1);
    let mut out = [0; 10];
    let shortly = || Instant::now() + Duration::from_millis(700);
    server.stop();
    assert_eq!(engine.get(0, 0, &mut out, shortly()), Err(EngineError::Late));
    assert_eq!(engine.put(1, &object(1), shortly()), Err(EngineError::Late));
    assert_eq!(engine.delete(&[0], shortly()), Err(EngineError::Late));
    // It may do late what it was asked for, but never half of it.
    server.go_on();
    engine.delete(&[0, 1], soon()).expect("a deletion");
    put(&*engine, 2..3);
    assert_eq!(missing(&*engine, 2..3), 0);
    server.kill();
    let error = engine.get(2, 0, &mut out, shortly()).expect_err("nobody is there");
    assert!(matches!(error, EngineError::Unreachable(_) | EngineError::Late), "{error}");
}

#[test]
fn a_server_that_trickles_holds_nobody_longer_than_the_deadline() {
    if !has_loopback("a_server_that_trickles_holds_nobody_longer_than_the_deadline") {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            thread::spawn(move || {
                let _ = stream.write_all(b"$1000000\r\n");
                while stream.write_all(b"x").is_ok() {
                    thread::sleep(Duration::from_millis(10));
                }
            });
        }
    });
    let error = connect_with(&format!("redis://{address}"), &[]).expect_err("it says nothing");
    assert!(error.to_string().contains("does not answer"), "{error}");
}

#[test]
fn a_server_that_does_not_end_fills_no_memory() {
    if !has_loopback("a_server_that_does_not_end_fills_no_memory") {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let _ = stream.write_all(b"$500000000\r\n");
            let part = vec![b'x'; 1 << 20];
            while stream.write_all(&part).is_ok() {}
        }
    });
    let error = connect_with(&format!("redis://{address}"), &[]).expect_err("it does not end");
    assert!(error.to_string().contains("more than it was asked for"), "{error}");
}

#[test]
fn redirections_end() {
    if !has_loopback("redirections_end") {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            thread::spawn(move || {
                let mut heard = [0; 4096];
                while let Ok(len @ 1..) = stream.read(&mut heard) {
                    let info = "run_id:x\r\nrole:master\r\n";
                    let _ = match heard[..len].windows(4).any(|word| word == b"INFO") {
                        true => write!(stream, "${}\r\n{info}\r\n", info.len()),
                        false => write!(stream, "-MOVED 7 {address}\r\n"),
                    };
                }
            });
        }
    });
    let engine = connect(&format!("redis://{address}"));
    let error = engine.put(0, b"sealed", Instant::now() + Duration::from_secs(2)).expect_err("no");
    // The time may end in the middle of one.
    let says = |what: &str| error.to_string().contains(what);
    assert!(says("from node to node") || says("no answer in time"), "{error}");
}

#[test]
fn what_lies_in_redis_tells_nothing_and_is_removed_at_the_end() {
    if !ready("what_lies_in_redis_tells_nothing_and_is_removed_at_the_end") {
        return;
    }
    let server = Server::start(&[]);
    let engine = connect(&server.place());
    let backing = FarBacking::open(Arc::clone(&engine), FarOptions::new(4 << 20));
    let backing = backing.expect("a backing");
    let secret = b"nobody but the owner of these bytes may read this line of text. ";
    let plain = secret.repeat((1 << 20) / secret.len());
    backing.write_at(512, &plain).expect("written");
    let mut bytes = 0;
    for key in server.cli(&["KEYS", "*"]).lines() {
        let value = server.cli(&["--no-raw", "GET", key]);
        bytes += value.len();
        assert!(!value.contains("owner of these"), "plain text in {key}");
    }
    assert!(bytes > plain.len(), "only {bytes} bytes were looked at");
    let mut out = vec![0; plain.len()];
    backing.read_at(512, &mut out).expect("read");
    assert!(out == plain);
    drop(backing);
    assert_eq!(server.values(), 0);
}
