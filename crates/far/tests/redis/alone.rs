//! One server, or a master with a replica.

use std::io::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use zfold_far::EngineError;
use zfold_far::testing::conformance;
use zfold_testing::net::serve;
use zfold_testing::redis::{Server, ready};
use zfold_testing::skip::has_loopback;
use zfold_testing::{needs, wait_until};

use crate::{connect, connect_with, missing, object, put, soon};

/// Starts a master and its replica; returns them and their place, with two copies.
fn pair() -> (Server, Server, String) {
    let master = Server::start(&[]);
    let replica = Server::start(&["--replicaof", "127.0.0.1", &master.port.to_string()]);
    let is_up = || replica.cli(&["INFO", "replication"]).contains("master_link_status:up");
    wait_until("the replica is connected", is_up);
    let place = format!("redis://{},{}/?copies=2", master.address(), replica.address());
    (master, replica, place)
}

#[test]
fn a_server_does_what_an_engine_must() {
    needs!(ready());
    let server = Server::start(&[]);
    conformance(&*connect(&server.place()));
    let (_master, _replica, place) = pair();
    conformance(&*connect(&place));
}

#[test]
fn values_expire_unless_they_are_renewed_and_are_removed_when_their_owner_says_so() {
    needs!(ready());
    let server = Server::start(&[]);
    let engine = connect(&server.place());
    put(&*engine, 0..10);
    let keys = server.cli(&["KEYS", "zfold:*"]);
    let left = |key: &str| server.cli(&["TTL", key]).parse::<u64>().expect("seconds");
    assert_eq!(keys.lines().count(), 10);
    for key in keys.lines() {
        assert!((3000..=3600).contains(&left(key)), "{key} lives for {} s", left(key));
        server.cli(&["EXPIRE", key, "100"]);
    }
    engine.renew(&(0..11).collect::<Vec<_>>(), soon()).expect("a renewal");
    assert!(keys.lines().all(|key| left(key) > 3000));
    engine.delete(&(0..10).collect::<Vec<_>>(), soon()).expect("a deletion");
    assert_eq!(server.values(), 0);
}

#[test]
fn with_two_copies_a_replica_that_takes_over_has_all() {
    needs!(ready());
    let (mut master, replica, place) = pair();
    let engine = connect(&place);
    put(&*engine, 0..40);
    assert_eq!((master.values(), replica.values()), (40, 40), "when they are put");
    replica.stop();
    let error = engine.put(40, &object(40), Instant::now() + Duration::from_secs(2));
    let error = error.expect_err("no replica has it").to_string();
    assert!(error.contains("0 replicas") || error.contains("no answer in time"), "{error}");
    replica.go_on();
    put(&*engine, 40..50);
    master.kill();
    replica.cli(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(missing(&*engine, 0..50), 0);
    engine.delete(&(0..50).collect::<Vec<_>>(), soon()).expect("a deletion");
    assert_eq!(replica.values(), 0);
}

#[test]
fn what_a_replica_that_takes_over_does_not_have_is_missing() {
    needs!(ready());
    let (mut master, replica, place) = pair();
    let engine = connect(&place.replace("copies=2", "copies=1"));
    put(&*engine, 0..20);
    master.cli(&["WAIT", "1", "0"]);
    replica.stop();
    put(&*engine, 20..30);
    master.kill();
    replica.go_on();
    replica.cli(&["REPLICAOF", "NO", "ONE"]);
    let reached = replica.values();
    assert!((20..=30).contains(&reached));
    assert_eq!(missing(&*engine, 0..30), 30 - reached);
    put(&*engine, 30..40);
    assert_eq!(missing(&*engine, 30..40), 0);
}

#[test]
fn a_server_that_stops_makes_calls_end_by_their_deadlines() {
    needs!(ready());
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
fn a_server_that_does_not_end_holds_nobody_and_fills_no_memory() {
    needs!(has_loopback());
    for (len, part, pause, told) in [
        (1_000_000, 1, 10, "does not answer"),
        (500_000_000, 1 << 20, 0, "more than it was asked for"),
    ] {
        let address = serve(move |mut stream| {
            let _ = write!(stream, "${len}\r\n");
            while stream.write_all(&vec![b'x'; part]).is_ok() {
                thread::sleep(Duration::from_millis(pause));
            }
        });
        let error = connect_with(&format!("redis://{address}"), &[]).expect_err("it does not end");
        assert!(error.to_string().contains(told), "{error}");
    }
}
