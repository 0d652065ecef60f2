//! What a client that died has left behind, and the clients that go on.

mod client;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::*;
use zfold_disk::nbd::{Address, Listener, NbdOptions, NbdServer};

const ROUNDS: u64 = 100;
/// Writes that a client sends before it dies: they take the server longer than the death.
const WRITES: u64 = 64;
/// The same over TCP: what its system can send at once, so that the server hears of the death.
const TCP_WRITES: u64 = 12;
/// How long the later bytes are looked at.
const LOOK: Duration = Duration::from_millis(5);

/// Returns requests that write `salt` to each of the first `pages`.
fn writes(pages: u64, salt: u64) -> Vec<u8> {
    let write = |n| [request(WRITE, 0, n, n * PAGE, 4096), bytes(4096, salt)].concat();
    (0..pages).flat_map(write).collect()
}

/// Has one client send writes and die, and then another one, which was connected already, write
/// the same `pages`: these keep its bytes.
fn the_later_client_wins<S: Read + Write>(pages: u64, mut connect: impl FnMut() -> Client<S>) {
    let mut other = connect();
    for round in 0..ROUNDS {
        let mut dying = connect();
        let _ = dying.stream.write_all(&writes(pages, 1));
        drop(dying);
        let new: Vec<u8> = (0..pages).flat_map(|_| bytes(4096, 2 + round)).collect();
        assert_eq!(other.write(0, 0, &new), 0);
        let end = Instant::now() + LOOK;
        while Instant::now() < end {
            let found = other.read(0, 0, new.len() as u32).expect("a read");
            let wrong = found.chunks(4096).zip(new.chunks(4096)).filter(|(a, b)| a != b).count();
            assert_eq!(wrong, 0, "round {round}: pages of the dead client");
        }
    }
}

#[test]
fn writes_of_a_dead_client_do_not_come_after_those_of_another() {
    let disk = disk(WRITES);
    let mut served = Served::one(&disk);
    the_later_client_wins(WRITES, || served.ready());
}

#[test]
fn nor_do_they_over_tcp() {
    zfold_testing::needs!(has_loopback());
    let listener = Listener::bind(&Address::Tcp("127.0.0.1:0".into())).unwrap();
    let uri = listener.uri(false);
    let address = uri.trim_end_matches('/').rsplit('/').next().unwrap().to_owned();
    let server = NbdServer::new(disk(WRITES), NbdOptions::default());
    server.serve(listener).unwrap();
    the_later_client_wins(TCP_WRITES, || {
        let stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Client::greet(stream);
        client.structured();
        client.go("");
        client
    });
    assert!(server.shutdown(PATIENCE));
}

#[test]
fn a_broken_connection_keeps_no_other_of_its_client_waiting() {
    let disk = disk(1024);
    disk.write(0, &bytes(1024 * 4096, 1)).unwrap();
    let mut served = Served::one(&disk);
    let mut others = [served.ready(), served.ready(), served.ready()];
    // It takes no reply, so that its threads stand still with what they have read.
    let mut stuck = served.ready();
    for _ in 0..64 {
        stuck.request(READ, DF, 0, 1 << 20);
    }
    // Less than the system holds for it; it ends within a payload.
    stuck.send(&writes(WRITES, 3)[..100_000]);
    stuck.stream.shutdown(Shutdown::Write).unwrap();
    let began = Instant::now();
    for other in &mut others {
        for n in 0..100 {
            assert_eq!(other.write(0, n * PAGE, &bytes(4096, n)), 0);
            assert_eq!(other.read(0, n * PAGE, 4096), Ok(bytes(4096, n)));
        }
    }
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    drop(stuck);
    for (n, other) in others.iter_mut().enumerate() {
        assert_eq!(other.write(0, n as u64 * PAGE, &bytes(4096, 9)), 0);
    }
    drop(others);
    served.finish();
    assert_eq!(Arc::strong_count(&disk), 1, "all have left");
}

#[test]
fn a_client_that_leaves_in_order_is_served_to_its_end() {
    let disk = disk(1024);
    let mut served = Served::one(&disk);
    let mut other = served.ready();
    for round in 0..20 {
        let mut leaving = served.ready();
        leaving.send(&[writes(WRITES, round), request(DISCONNECT, 0, 0, 0, 0)].concat());
        leaving.stream.shutdown(Shutdown::Write).unwrap();
        // Others are active meanwhile.
        other.read(0, 512 * PAGE, 4096).expect("a read");
        for _ in 0..WRITES {
            assert!(matches!(leaving.reply(), Reply::Simple { error: 0, .. }));
        }
        leaving.assert_closed();
        assert_eq!(other.read(0, 0, 4096), Ok(bytes(4096, round)));
    }
}
