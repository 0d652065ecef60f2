//! Eight clients under load, while hostile clients and guests come and go: no request of the eight
//! is lost, and none of their bytes is wrong.

mod client;
mod common;
mod monitor;

use std::collections::VecDeque;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use client::{
    Client, FLUSH, GO, PAGE, READ, TRIM, WRITE, WRITE_ZEROES, bytes, info_request, request,
};
use monitor::{Guest, MIB};
use vhost::VhostBackend;
use virtio_bindings::bindings::virtio_blk::{VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT};
use zfold_disk::nbd::{Address, Listener, NbdOptions, NbdServer};
use zfold_disk::vhost_user::VhostUserFrontend;
use zfold_testing::wait::PATIENCE;
use zfold_testing::{Random, wait_until};

const CLIENTS: u64 = 8;
/// Pages of which a client knows every byte.
const PAGES: u64 = 64;
/// Requests of a client at least.
const REQUESTS: u64 = 300;
const HOSTILE: u64 = 150;
const GUESTS: u64 = 12;

/// One of those who are hostile; gone when this is dropped, also by a panic, so that nobody waits.
struct Hostile<'a>(&'a AtomicUsize);

impl Drop for Hostile<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Sends requests until `hostile` is 0, and checks every answer.
fn work(path: &Path, n: u64, begun: &AtomicUsize, hostile: &AtomicUsize) {
    let mut numbers = Random::new(n);
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut client = Client::greet(stream);
    client.structured();
    client.go("");
    begun.fetch_add(1, Ordering::Relaxed);
    let base = n * PAGES * PAGE;
    let mut expected = vec![0; (PAGES * PAGE) as usize];
    let mut sent = 0;
    while sent < REQUESTS || hostile.load(Ordering::Relaxed) > 0 {
        sent += 1;
        let at = numbers.below(PAGES * PAGE);
        let len = numbers.below(PAGES * PAGE - at).min(numbers.below(4 * PAGE)) as usize;
        let own = &mut expected[at as usize..][..len];
        match numbers.below(8) {
            0..3 => {
                own.copy_from_slice(&bytes(len, sent));
                assert_eq!(client.write(0, base + at, own), 0, "client {n}, write {sent}");
            }
            3 => {
                own.fill(0);
                let command = if numbers.below(2) == 0 { TRIM } else { WRITE_ZEROES };
                assert_eq!(client.simple(command, 0, base + at, len as u32), 0);
            }
            4 => assert_eq!(client.simple(FLUSH, 0, 0, 0), 0),
            _ => {
                let read = client.read(0, base + at, len as u32).unwrap();
                assert!(read == own, "client {n}, read {sent}");
            }
        }
    }
    assert!(client.read(0, base, expected.len() as u32).unwrap() == expected, "client {n}");
}

/// Connects, says something that a sound client does not, and lets some time pass before it leaves.
fn misbehave(path: &Path, numbers: &mut Random, kept: &mut VecDeque<UnixStream>) {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let flags = [0, 0, 0, 3];
    let option = |option: u32, data: &[u8]| {
        let head = [&b"IHAVEOPT"[..], &option.to_be_bytes(), &(data.len() as u32).to_be_bytes()];
        [&head.concat(), data].concat()
    };
    let go = option(GO, &info_request("", &[]));
    let len = numbers.below(400) as usize;
    let garbage = numbers.half_noise(len);
    let outside = CLIENTS * PAGES * PAGE;
    let said = match numbers.below(10) {
        0 => garbage,
        1 => [&flags[..], &garbage].concat(),
        2 => [&flags[..], &go[..numbers.below(20) as usize]].concat(),
        3 => [&flags[..], &option(99, &[]).repeat(50)].concat(),
        4 => [&flags[..], &go].concat(),
        5 => [&flags[..], &go, &garbage].concat(),
        6 => [&flags[..], &go, &request(WRITE, 0, 1, outside, 1 << 20), &garbage].concat(),
        7 => [&flags[..], &go, &request(WRITE, 0, 1, u64::MAX, u32::MAX)].concat(),
        // It leaves in the midst of the replies.
        8 => [&flags[..], &go, &request(READ, 0, 1, 0, 2 << 20).repeat(8)].concat(),
        _ => Vec::new(),
    };
    // The server may have hung up.
    let _ = stream.write_all(&said);
    kept.push_back(stream);
    if kept.len() > 24 {
        kept.pop_front();
    }
}

/// Offers memory that is not there, or takes it away.
fn misguide(socket: &Path, round: u64) {
    if round.is_multiple_of(2) {
        let guest = Guest::shake_hands(socket);
        let mut region = guest.region();
        (region.memory_size, region.mmap_offset) = (MIB << (round % 8), round << 20);
        let _ = guest.monitor.set_mem_table(&[region]);
    } else {
        let mut guest = Guest::connect(socket);
        guest.prepare(VIRTIO_BLK_T_IN, 0, &vec![0; 64 << 10]);
        // The server may look at the queue at any time, so the request's memory goes before it is
        // offered; with the queue's own, which the guest writes to offer it, it is the other way.
        let left = round % 3 * (MIB / 2);
        if left > 0 {
            guest.file().set_len(left).unwrap();
        }
        guest.offer(0);
        guest.file().set_len(left).unwrap();
        guest.wait_for_the_end();
    }
}

#[test]
fn eight_clients_lose_nothing_to_hostile_clients_and_guests() {
    let dir = tempfile::tempdir().unwrap();
    let (path, socket) = (dir.path().join("nbd"), dir.path().join("guest"));
    // The last page is for those who misbehave, and for the guests.
    let disk = client::disk(CLIENTS * PAGES + 1);
    let options = NbdOptions::default()
        .with_max_connections(CLIENTS as usize + 4)
        .with_idle_after(Duration::from_secs(3600));
    let server = NbdServer::new(Arc::clone(&disk), options);
    server.serve(Listener::bind(&Address::Unix(path.clone())).unwrap()).unwrap();
    let frontend = VhostUserFrontend::listen(Arc::clone(&disk), &socket, Some(2)).unwrap();

    let (begun, hostile) = (AtomicUsize::new(0), AtomicUsize::new(2));
    thread::scope(|scope| {
        let (path, begun, hostile) = (&path, &begun, &hostile);
        let (one, other) = (Hostile(hostile), Hostile(hostile));
        (0..CLIENTS).for_each(|n| drop(scope.spawn(move || work(path, n, begun, hostile))));
        // Each is a client before anyone could take the place of its handshake.
        let all_begun = || begun.load(Ordering::Relaxed) >= CLIENTS as usize;
        wait_until("all clients had an answer", all_begun);
        scope.spawn(move || {
            let _one = one;
            let (mut numbers, mut kept) = (Random::new(99), VecDeque::new());
            (0..HOSTILE).for_each(|_| misbehave(path, &mut numbers, &mut kept));
        });
        let socket = &socket;
        scope.spawn(move || {
            let _other = other;
            (0..GUESTS).for_each(|round| misguide(socket, round));
        });
    });
    let stats = server.stats();
    assert!(stats.requests_total >= CLIENTS * REQUESTS && stats.failed_handshakes_total > 0);
    let mut guest = Guest::connect(&socket);
    let last = CLIENTS * PAGES * PAGE / 512;
    assert_eq!(guest.request(VIRTIO_BLK_T_OUT, last, &[1; 512]).0, 0);
    drop(frontend);
    assert!(server.shutdown(PATIENCE));
    disk.store().check();
}
