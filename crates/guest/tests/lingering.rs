//! Peers whose descriptors cannot be closed. In a program of its own: the children of other tests
//! would have copies of these descriptors, and be the last to close them.

mod common;
mod vmm;

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd as _, IntoRawFd as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use common::{send, serves, world};
use rustix::net::sockopt::set_socket_linger;
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

/// Sends a descriptor that lingers, in one of four ways, and closes it.
fn send_lingering(socket: &Path, number: usize) {
    let text = br#"[{"base_host_virt_addr":1048576,"size":4096,"offset":0,"page_size":4096}]"#;
    let (stream, other) = lingering();
    let peer = UnixStream::connect(socket).expect("connected");
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

/// apart/T1: whatever it sends in place of a userfaultfd, beside one, or where nobody reads it.
#[test]
fn a_peer_whose_descriptors_cannot_be_closed_keeps_nobody_out() {
    let world = world(64, 8, Duration::from_secs(2));
    let socket = world.socket.clone();
    // More than there are places, and more than there are handshakes. With a table of its own: a
    // thread of the server begins with a copy of this process's, and would be the last to close
    // these before it reads anything.
    let peers = thread::spawn(move || {
        // SAFETY: this thread has no descriptor yet that it shares with others.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_FILES) }, 0);
        (0..40).for_each(|number| send_lingering(&socket, number));
    });
    peers.join().expect("sent");
    // So that most have begun to close it.
    thread::sleep(Duration::from_millis(500));
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
