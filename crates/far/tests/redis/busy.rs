//! Servers that answer that they cannot now: whoever reads waits, and nobody is told of a loss.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use zfold_far::{FarBacking, FarOptions};
use zfold_store::backing::Backing as _;
use zfold_testing::needs;
use zfold_testing::redis::{Server, ready};
use zfold_testing::wait::{at_once, wait_until};

use crate::{connect, missing, put};

#[test]
fn a_server_that_a_script_keeps_busy_is_waited_for() {
    needs!(ready());
    let server = Server::start(&["--busy-reply-threshold", "10"]);
    let engine = connect(&server.place());
    put(&*engine, 0..1);
    let mut script = Command::new("redis-cli")
        .args(["-p", &server.port.to_string(), "EVAL", "while true do end", "0"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-cli starts");
    wait_until("the script runs", || server.try_cli(&["PING"]).is_none());
    let reader = thread::spawn(move || missing(&*engine, 0..1));
    thread::sleep(Duration::from_millis(300));
    server.cli(&["SCRIPT", "KILL"]);
    assert_eq!(reader.join().expect("no other error"), 0);
    script.wait().expect("an end");
}

#[test]
fn a_server_with_no_room_for_connections_is_waited_for() {
    needs!(ready());
    let server = Server::start(&["--maxclients", "2"]);
    let engine = connect(&server.place());
    at_once(0..8, |thread| {
        let engine = &*engine;
        let numbers = 100 * thread..100 * thread + 30;
        put(engine, numbers.clone());
        assert_eq!(missing(engine, numbers), 0);
    });
}

#[test]
fn a_server_that_closes_what_nobody_uses_is_no_server_that_fails() {
    needs!(ready());
    let server = Server::start(&["--timeout", "1"]);
    let engine = connect(&server.place());
    put(&*engine, 0..10);
    wait_until("it has closed all but that of redis-cli", || {
        server.cli(&["INFO", "clients"]).contains("connected_clients:1\r")
    });
    assert_eq!(missing(&*engine, 0..10), 0);
    let said = server.cli(&["INFO", "commandstats"]);
    assert!(said.contains("cmdstat_getrange:calls=10"), "{said}");
}

#[test]
fn a_full_server_has_room_again_when_pages_die() {
    needs!(ready());
    let server = Server::start(&["--maxmemory", "8mb"]);
    let options = FarOptions::new(64 << 20).with_probe_max(Duration::from_secs(1));
    let backing = FarBacking::open(Arc::clone(&connect(&server.place())), options);
    let backing = backing.expect("a backing");
    const LEN: usize = 200 << 10;
    let mut written = 0;
    while backing.write_at((written * LEN) as u64, &[written as u8; LEN]).is_ok() {
        written += 1;
        assert!(written < 300, "it is never full");
    }
    assert!(backing.stats().absent && written > 4);
    // One is kept, and must be there all the time.
    backing.discard(LEN as u64, ((written - 1) * LEN) as u64).expect("discarded");
    wait_until("there is room", || backing.write_at((5 * LEN) as u64, &[5; LEN]).is_ok());
    let mut out = vec![9; LEN];
    backing.read_at(0, &mut out).expect("it was kept");
    assert!(out == [0; LEN]);
}
