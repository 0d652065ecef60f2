//! Peers whose descriptors cannot be closed. They are in a process of their own: while one of their
//! sockets is open, whoever makes a process or a table of descriptors here would copy it, and might
//! be the last to close it.

mod common;
mod vmm;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd as _, IntoRawFd as _};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{send, serves, world};
use rustix::net::sockopt::set_socket_linger;
use zfold_testing::wait::PATIENCE;
use zfold_testing::wait_for;

/// Not a test: the process of a stand-in. Without its environment it does nothing.
#[test]
fn stand_in() {
    vmm::inside::run();
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

/// More than there are places, and more than there are handshakes.
const PEERS: u64 = 40;

/// Not a test: the process of the peers, until its input ends. Without its environment it does
/// nothing.
#[test]
fn peers() {
    let Some(socket) = std::env::var_os("ZFOLD_PEERS_SOCKET") else { return };
    let text = br#"[{"base_host_virt_addr":1048576,"size":4096,"offset":0,"page_size":4096}]"#;
    for number in 0..PEERS {
        let (stream, other) = lingering();
        let peer = UnixStream::connect(&socket).expect("connected");
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
        thread::spawn(move || drop(stream));
    }
    println!("sent");
    let _ = std::io::stdin().read(&mut [0]);
    std::process::exit(0);
}

/// apart/T1: whatever it sends in place of a userfaultfd, beside one, or where nobody reads it.
#[test]
fn a_peer_whose_descriptors_cannot_be_closed_keeps_nobody_out() {
    let world = world(64, 8, Duration::from_secs(10));
    let mut peers = Command::new(std::env::current_exe().expect("a program"))
        .args(["--exact", "peers", "--nocapture", "--test-threads=1"])
        .env("ZFOLD_PEERS_SOCKET", &world.socket)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut lines = BufReader::new(peers.stdout.take().expect("a pipe")).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line.ends_with("sent"))), "they have ended");
    // First: the child below would have a copy of a connection that is just accepted, and be the
    // last to close it.
    wait_for(|| {
        let failed = world.server.stats().served.failed_handshakes_total;
        (failed == PEERS).then_some(()).ok_or(failed)
    });
    let began = Instant::now();
    serves(&world);
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    world.has_guests(0);
    world.hears("since the last line");
    drop(peers.stdin.take());
    peers.wait().expect("they end");
}
