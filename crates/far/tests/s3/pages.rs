//! Pages in a bucket: what lies there, and what is lost with it.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use zfold_far::testing::conformance;
use zfold_far::{FarBacking, FarOptions};
use zfold_store::backing::Backing as _;
use zfold_testing::random::noise as bytes;
use zfold_testing::s3::{S3, ready};

use crate::engine;

/// Length of one write, and so of one object.
const LEN: usize = 64 << 10;

/// What a call of a server that works may take, on a machine that has other work.
const PATIENCE: Duration = Duration::from_secs(60);
/// What one of a server that does not may take.
const DEADLINE: Duration = Duration::from_secs(6);

fn options(deadline: Duration) -> FarOptions {
    FarOptions::new(64 << 20).with_deadline(deadline)
}

/// Returns a backing of which each read asks the server.
fn far(server: &S3, deadline: Duration) -> FarBacking {
    let options = options(deadline).with_read_ahead(0);
    FarBacking::open(engine(server, "cold"), options).expect("a backing")
}

fn read(far: &FarBacking, number: u64) -> io::Result<Vec<u8>> {
    let mut out = vec![0; LEN];
    far.read_at(number * LEN as u64, &mut out).map(|()| out)
}

fn signal(server: &S3, signal: Signal) {
    let pid = Pid::from_raw(server.pid() as i32).expect("a process");
    kill_process(pid, signal).expect("it runs");
}

#[test]
fn s3_does_what_an_engine_must() {
    if !ready("s3_does_what_an_engine_must") {
        return;
    }
    let server = S3::start();
    let engine = engine(&server, "a/b c");
    conformance(&*engine);
    let name = engine.name();
    assert!(name.starts_with("s3://pages/a/b c at http://127.0.0.1:"), "{name}");
    assert!(!format!("{engine:?}").contains("hunter2"), "{engine:?}");
    server.put("a/b c/mine".replace(' ', "%20").as_str(), b"not zfold's");
    engine.close(super::soon()).expect("removed");
    assert_eq!(server.keys(""), ["a/b c/mine"], "what others have there stays");
}

#[test]
fn what_lies_there_cannot_be_read_and_goes_with_its_owner() {
    if !ready("what_lies_there_cannot_be_read_and_goes_with_its_owner") {
        return;
    }
    let server = S3::start();
    let far = far(&server, PATIENCE);
    let secret = b"the quick brown fox jumps over the lazy dog.";
    let text: Vec<u8> = secret.iter().copied().cycle().take(LEN).collect();
    for number in 0..8 {
        far.write_at(number * LEN as u64, &text).expect("written");
    }
    assert!(read(&far, 3).expect("read") == text);
    let mut page = vec![0; 4096];
    far.read_at(5 * LEN as u64 + 8192, &mut page).expect("read");
    assert!(page == text[8192..8192 + 4096], "one page of an object");
    let keys = server.keys("cold/");
    assert_eq!(keys.len(), 8 + 1, "and the lease: {keys:?}");
    for key in &keys {
        let lies = server.get(key);
        assert!(!lies.windows(8).any(|part| part == &secret[..8]), "{key} can be read");
    }
    far.close();
    assert!(server.keys("").is_empty(), "nothing is left behind");
}

#[test]
fn pages_of_an_object_come_with_one_request() {
    if !ready("pages_of_an_object_come_with_one_request") {
        return;
    }
    let server = S3::start();
    let far = FarBacking::open(engine(&server, "cold"), options(PATIENCE)).expect("a backing");
    let object = bytes(7, LEN / 2);
    far.write_at(0, &object).expect("written");
    for (at, page) in object.chunks_exact(4096).enumerate() {
        let mut read = vec![0; 4096];
        far.read_at(at as u64 * 4096, &mut read).expect("read");
        assert!(read == page, "page {at}");
    }
    let stats = far.stats();
    assert_eq!((stats.gets_total, stats.read_ahead_total), (1, 7));
}

#[test]
fn a_lost_object_costs_its_pages_alone() {
    if !ready("a_lost_object_costs_its_pages_alone") {
        return;
    }
    let server = S3::start();
    let far = far(&server, PATIENCE);
    for number in 0..6 {
        far.write_at(number * LEN as u64, &bytes(number, LEN)).expect("written");
    }
    let lost = server.keys("cold/").into_iter().filter(|key| !key.ends_with("lease")).nth(2);
    server.delete(&lost.expect("six objects"));
    let failed: Vec<_> = (0..6).filter(|number| read(&far, *number).is_err()).collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    for number in (0..6).filter(|number| *number != failed[0]) {
        assert!(read(&far, number).expect("read") == bytes(number, LEN), "{number}");
    }
    assert_eq!(read(&far, failed[0]).unwrap_err().kind(), io::ErrorKind::NotFound);
    far.write_at(failed[0] * LEN as u64, &bytes(9, LEN)).expect("written");
    assert!(read(&far, failed[0]).expect("read") == bytes(9, LEN));
}

#[test]
fn a_server_that_stops_holds_nobody_beyond_the_deadline() {
    if !ready("a_server_that_stops_holds_nobody_beyond_the_deadline") {
        return;
    }
    let mut server = S3::start();
    let far = far(&server, DEADLINE);
    far.write_at(0, &bytes(1, LEN)).expect("written");
    let fails = |what: &str, call: &dyn Fn() -> io::Error| {
        let begun = Instant::now();
        let error = call().to_string();
        let took = begun.elapsed();
        // The rest is for a machine on which the test itself waits.
        assert!(took < DEADLINE + PATIENCE, "{what} took {took:?}: {error}");
        assert!(error.contains("s3://pages/cold at http"), "{what}: {error}");
    };
    signal(&server, Signal::STOP);
    fails("a read of a stopped server", &|| read(&far, 0).expect_err("stopped"));
    fails("a write", &|| far.write_at(0, &bytes(2, LEN)).expect_err("stopped"));
    signal(&server, Signal::CONT);
    assert!(read(&far, 0).expect("it goes on") == bytes(1, LEN));
    server.kill();
    fails("a read of a server that is gone", &|| read(&far, 0).expect_err("gone"));
    fails("another write", &|| far.write_at(0, &bytes(2, LEN)).expect_err("gone"));
    let begun = Instant::now();
    Arc::new(far).close();
    assert!(begun.elapsed() < DEADLINE + PATIENCE, "the end took {:?}", begun.elapsed());
}
