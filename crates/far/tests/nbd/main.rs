//! The engine for NBD against a server that can do wrong: the contract, requests that come late,
//! connections that end, errors, and exports that are not fit.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use zfold_far::place::{Place, PlaceError, Source};
use zfold_far::testing::conformance;
use zfold_far::{Engine, EngineError, FarBacking, FarOptions};
use zfold_store::backing::Backing as _;

use zfold_testing::nbd::protocol::export_flag::{CAN_MULTI_CONN, READ_ONLY, SEND_TRIM};
use zfold_testing::nbd::server::{Does, Kind, Nbd};
use zfold_testing::skip::has_loopback;
use zfold_testing::wait::soon;
use zfold_testing::{needs, wait_until};

/// Length of an object that fills its grains almost.
const LEN: usize = 250_000;

fn shortly() -> Instant {
    Instant::now() + Duration::from_secs(2)
}

fn try_connect(place: &str) -> Result<Arc<dyn Engine>, PlaceError> {
    zfold_far::connect(&Place::parse(place, Source::Arguments, |_| None)?, soon())
}

fn connect(server: &Nbd) -> Arc<dyn Engine> {
    try_connect(&server.place()).expect("an engine")
}

fn object(number: u64) -> Vec<u8> {
    (0..LEN as u64).map(|at| ((at + 3) * (number * 2 + 1) % 253) as u8).collect()
}

/// Asserts that an object is there, by a range in its midst.
fn check(engine: &dyn Engine, number: u64) {
    let mut out = vec![0; 5001];
    engine.get(number, 70_001, &mut out, soon()).unwrap_or_else(|why| panic!("{number}: {why}"));
    assert!(out == object(number)[70_001..75_002], "{number}");
}

#[test]
fn an_export_does_what_an_engine_must() {
    needs!(has_loopback());
    for (block, flags, payload) in [
        (1, SEND_TRIM | CAN_MULTI_CONN, 32 << 20),
        (512, CAN_MULTI_CONN, 128 << 10),
        (4096, SEND_TRIM, 4096 + 77),
    ] {
        let server = Nbd::start(Kind { block, flags: flags | 1, payload, ..Kind::default() });
        let engine = connect(&server);
        conformance(&*engine);
        engine.close(soon()).expect("closed");
        let trimmed = server.bytes.lock().expect("no panic").iter().all(|byte| *byte == 0);
        assert_eq!(trimmed, flags & SEND_TRIM != 0, "nothing is left behind");
        // One connection, where another one need not see what it has written.
        let open = server.most_open.load(Ordering::SeqCst);
        assert!(
            if flags & CAN_MULTI_CONN == 0 { open == 1 } else { open > 1 },
            "{open} connections"
        );
    }
}

#[test]
fn a_write_that_comes_late_harms_nothing() {
    needs!(has_loopback());
    let server = Nbd::start(Kind { size: 8 << 20, ..Kind::default() });
    let engine = connect(&server);
    server.does(Does::Waits, 1);
    assert_eq!(engine.put(0, &object(0), shortly()), Err(EngineError::Late));
    assert_eq!(engine.get(0, 0, &mut [0], soon()), Err(EngineError::Missing));
    engine.delete(&[0], soon()).expect("deleted");
    // Everything else is used, twice.
    let mut numbers = Vec::new();
    for round in 0..2 {
        engine.delete(&numbers, soon()).expect("deleted");
        numbers.clear();
        let error = (1..100).find_map(|at| {
            let number = 100 * round + at;
            engine.put(number, &object(number), soon()).map(|()| numbers.push(number)).err()
        });
        let full = |why: &str| why.contains("full") && why.contains("253952");
        assert!(matches!(&error, Some(EngineError::Refused(why)) if full(why)), "{error:?}");
        assert!(numbers.len() >= 30);
    }
    server.go_on();
    let found = object(0);
    wait_until("it came late", || server.bytes.lock().expect("no panic").starts_with(&found));
    numbers.iter().for_each(|number| check(&*engine, *number));
}

#[test]
fn a_server_that_waits_makes_calls_end_by_their_deadlines() {
    needs!(has_loopback());
    let server = Nbd::start(Kind { flags: 1, ..Kind::default() });
    let engine = connect(&server);
    engine.put(1, &object(1), soon()).expect("a put");
    server.does(Does::Waits, 1000);
    assert_eq!(engine.get(1, 0, &mut [0; 10], shortly()), Err(EngineError::Late));
    server.go_on();
    check(&*engine, 1);
}

#[test]
fn a_connection_that_ends_is_made_again() {
    needs!(has_loopback());
    let server = Nbd::start(Kind::default());
    let engine = connect(&server);
    for number in 0..4 {
        server.does(Does::Ends, 3);
        engine.put(number, &object(number), soon()).expect("a put");
        server.does(Does::Ends, 2);
        check(&*engine, number);
    }
    assert!(server.connections.load(Ordering::SeqCst) >= 20);
    (0..4).for_each(|number| check(&*engine, number));
}

#[test]
fn an_error_of_the_server_is_told_and_spares_the_connection() {
    needs!(has_loopback());
    let server = Nbd::start(Kind::default());
    let engine = connect(&server);
    for (error, told) in [(28, "no space is left"), (5, "input/output"), (77, "error 77")] {
        server.does(Does::Error(error), 1);
        let refused = engine.put(u64::from(error), &object(0), soon()).expect_err("refused");
        assert!(matches!(&refused, EngineError::Refused(why) if why.contains(told)), "{refused}");
    }
    engine.put(1, &object(1), soon()).expect("a put");
    server.does(Does::Error(5), 1);
    assert!(matches!(engine.get(1, 0, &mut [0; 9], soon()), Err(EngineError::Refused(_))));
    check(&*engine, 1);
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
}

#[test]
fn exports_that_are_not_fit_are_refused_with_the_remedy() {
    needs!(has_loopback());
    let fit = Kind::default();
    for (kind, told) in [
        (Kind { flags: 1 | READ_ONLY, ..fit }, "serve it for writing"),
        (Kind { size: 1 << 20, ..fit }, "8 MiB"),
        (Kind { block: 8192, ..fit }, "blocks of 4096"),
        (Kind { block: 0, ..fit }, "blocks of 4096"),
        (Kind { payload: 512, ..fit }, "requests of 512"),
    ] {
        let error = try_connect(&Nbd::start(kind).place()).expect_err("refused").to_string();
        assert!(error.contains(told) && !error.contains('\n'), "{error}");
    }
    let place = Nbd::start(fit).place().replace("cold", "hot");
    let error = try_connect(&place).expect_err("no such export").to_string();
    assert!(error.contains("no such export") && error.contains("try cold"), "{error}");
    let error = try_connect("nbd://127.0.0.1:1/x").expect_err("nobody").to_string();
    assert!(error.contains("start it"), "{error}");
}

#[test]
fn a_server_that_does_not_end_fills_no_memory() {
    needs!(has_loopback());
    let server = Nbd::start(Kind { talks: true, ..Kind::default() });
    let error = try_connect(&server.place()).expect_err("it does not end").to_string();
    assert!(error.contains("more than it was asked for"), "{error}");
}

#[test]
fn pages_come_back_and_nobody_else_can_read_them() {
    needs!(has_loopback());
    let server = Nbd::start(Kind::default());
    let engine = connect(&server);
    assert!(engine.room().is_some_and(|room| (7 << 20..8 << 20).contains(&room)));
    let backing = FarBacking::open(Arc::clone(&engine), FarOptions::new(7 << 20)).expect("opened");
    let secret = b"nobody but the owner of these bytes may read this line of text. ";
    let plain = secret.repeat((1 << 20) / secret.len());
    // Written again and again, so that the cleaner has work.
    for round in 0..40_u64 {
        backing.discard(round % 7 * (1 << 20), 1 << 20).expect("discarded");
        backing.write_at(round % 7 * (1 << 20), &plain).expect("written");
    }
    let mut out = vec![0; plain.len()];
    for at in 0..7 {
        backing.read_at(at << 20, &mut out).expect("read");
        assert!(out == plain);
    }
    let lies = |part: &[u8]| {
        let bytes = server.bytes.lock().expect("no panic");
        bytes.windows(part.len()).any(|at| at == part)
    };
    assert!(!lies(&secret[..8]));
    // What somebody else changes there is an error, and no page.
    server.bytes.lock().expect("no panic").iter_mut().for_each(|byte| *byte ^= 1);
    let error = backing.read_at(0, &mut out).expect_err("changed");
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
    drop(backing);
    assert!(server.bytes.lock().expect("no panic").iter().all(|byte| *byte == 0));
}
