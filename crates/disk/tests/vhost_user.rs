//! The vhost-user frontend, through its socket, with a monitor and a guest made here.
//!
//! - What one connection writes, the next one reads: the device outlives its monitors.
//! - A server may be replaced, or killed, with requests waiting: each is answered once.
//! - The configuration says what the device can do.
//! - A monitor that talks nonsense does not end the server.

mod common;
mod monitor;

use std::env;
use std::io::Read;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use monitor::{Guest, MIB, serve};
use vhost::VhostBackend;
use vhost::vhost_user::VhostUserFrontend as _;
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserProtocolFeatures};
use virtio_bindings::bindings::virtio_blk::{
    VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT,
};
use zfold_disk::vhost_user::{VhostUserError, VhostUserFrontend};
use zfold_testing::process::Killed;
use zfold_testing::{Random, wait_until};

#[test]
fn the_device_outlives_its_monitors() {
    let server = serve();
    let data = Random::new(1).half_noise(64 << 10);
    for round in 0..5_u64 {
        let mut guest = Guest::connect(&server.socket);
        if round > 0 {
            let (status, back) = guest.request(VIRTIO_BLK_T_IN, round - 1, &vec![0; data.len()]);
            assert_eq!(status, 0);
            assert!(back == data, "round {round}");
        }
        assert_eq!(guest.request(VIRTIO_BLK_T_OUT, round, &data).0, 0);
        assert_eq!(guest.request(VIRTIO_BLK_T_FLUSH, 0, &[]).0, 0);
        if round % 2 == 0 {
            // A queue that is stopped in good order says how far it came.
            assert_eq!(guest.monitor.get_vring_base(0).unwrap(), u32::from(guest.sent));
        }
    }
    assert_eq!(server.disk.stats().flushes_total, 5);
}

/// The monitor names the index up to which the guest has sent, and repeats no event.
#[test]
fn requests_that_waited_when_a_server_was_replaced_are_answered() {
    let mut server = serve();
    let data = Random::new(1).half_noise(64 << 10);
    let mut guest = Guest::connect(&server.socket);
    assert_eq!(guest.request(VIRTIO_BLK_T_OUT, 0, &data).0, 0);
    // The server has stopped, and its event is lost with it.
    drop(server.frontend.take());
    guest.prepare(VIRTIO_BLK_T_IN, 0, &vec![0; data.len()]);
    guest.offer(0);
    server.frontend = Some(monitor::listen(&server.disk, &server.socket));
    guest.connect_again(&server.socket);
    guest.wait();
    assert!(guest.received(data.len()) == (0, data.clone()));
    // One that was answered, without the guest having heard of it, is not served again.
    let flushes = server.disk.stats().flushes_total;
    assert_eq!(guest.request(VIRTIO_BLK_T_FLUSH, 0, &[]).0, 0);
    guest.connect_again(&server.socket);
    assert_eq!(guest.request(VIRTIO_BLK_T_IN, 0, &vec![0; data.len()]), (0, data));
    assert_eq!(server.disk.stats().flushes_total, flushes + 1);
}

/// The variable that makes the next test the server that it kills, and says where that listens.
const SERVER: &str = "ZFOLD_TEST_VHOST_USER_SERVER";
const SECTORS_PER_PAGE: u64 = 8;
const PAGE: usize = 4096;
/// Requests that the queue has room for at the same time.
const SLOTS: u16 = 5;

/// The page of a new server's disk.
fn first_page(page: u64) -> Vec<u8> {
    vec![0x50 + page as u8; PAGE]
}

/// A server in a process of its own, whose disk is the same each time that it begins.
struct Server {
    _process: Killed,
}

impl Server {
    fn start(socket: &Path) -> Self {
        let mut test = Command::new(env::current_exe().unwrap());
        test.args(["--exact", "a_server_that_is_killed_leaves_no_request_unanswered"]);
        let server = test.env(SERVER, socket).stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        let server = Self { _process: Killed(server.unwrap()) };
        wait_until("the server has begun", || UnixStream::connect(socket).is_ok());
        server
    }

    /// Serves until its standard input, which nobody writes to, is closed.
    fn run(socket: &Path) {
        let disk = common::disk(MIB, false);
        for page in 0..u64::from(SLOTS) {
            disk.write(page * PAGE as u64, &first_page(page)).unwrap();
        }
        let _frontend = monitor::listen(&disk, socket);
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    }
}

/// A server is killed at any moment while requests wait, and more come before the next one is
/// there. Each is answered once, in its order. That those with an answer are not served again is
/// seen by a disk that begins anew.
#[test]
fn a_server_that_is_killed_leaves_no_request_unanswered() {
    if let Some(socket) = env::var_os(SERVER) {
        return Server::run(Path::new(&socket));
    }
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("disk.sock");
    let mut server = Server::start(&socket);
    let mut guest = Guest::connect(&socket);
    let mut numbers = Random::new(1);
    let new_disk: Vec<_> = (0..SLOTS).map(|slot| first_page(slot.into())).collect();
    let mut disk = new_disk.clone();
    for round in 0..12_u8 {
        let (first, early) = (guest.sent, numbers.below(u64::from(SLOTS) + 1) as u16);
        let data = vec![round + 1; PAGE];
        let writes: Vec<bool> = (0..SLOTS).map(|_| numbers.once_in(2)).collect();
        for slot in 0..SLOTS {
            let kind = [VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT][usize::from(writes[usize::from(slot)])];
            guest.prepare_in(slot, kind, u64::from(slot) * SECTORS_PER_PAGE, &data);
        }
        (0..early).for_each(|slot| guest.submit(slot * 3));
        thread::sleep(Duration::from_micros(numbers.below(400)));
        drop(server);
        let answered = guest.used().wrapping_sub(first);
        (early..SLOTS).for_each(|slot| guest.offer(slot * 3));
        server = Server::start(&socket);
        guest.connect_again(&socket);
        guest.wait();
        for slot in 0..SLOTS {
            assert_eq!(guest.used_head(first.wrapping_add(slot)), u32::from(slot * 3));
            let (status, back) = guest.received_in(slot, PAGE);
            assert_eq!(status, 0, "round {round}, slot {slot}");
            let read_from = if slot < answered { &disk } else { &new_disk };
            let is_right = writes[usize::from(slot)] || back == read_from[usize::from(slot)];
            assert!(is_right, "round {round}, slot {slot}");
        }
        disk.clone_from(&new_disk);
        for slot in 0..SLOTS {
            let page = &mut disk[usize::from(slot)];
            if writes[usize::from(slot)] && slot >= answered {
                page.clone_from(&data);
            }
            let sector = u64::from(slot) * SECTORS_PER_PAGE;
            let (status, back) = guest.request(VIRTIO_BLK_T_IN, sector, &data);
            assert!(status == 0 && back == *page, "round {round}, slot {slot} on the disk");
        }
    }
}

#[test]
fn the_configuration_says_what_the_device_can_do() {
    let server = serve();
    let mut guest = Guest::connect(&server.socket);
    let flags = VhostUserConfigFlags::WRITABLE;
    let mut config = |offset, len: u32| {
        let none = vec![0; len as usize];
        guest.monitor.get_config(offset, len, flags, &none).unwrap().1
    };
    assert_eq!(config(0, 8), (16 * MIB / 512).to_le_bytes());
    assert_eq!(config(20, 4), 512_u32.to_le_bytes());
    assert_eq!(config(24, 4), [3, 0, 8, 0], "eight sectors to a page");
    assert_eq!(config(34, 2), 2_u16.to_le_bytes(), "queues");
    assert_eq!(config(36, 8), [0, 0, 32, 0, 32, 0, 0, 0], "1 GiB in each of 32 ranges");
    assert_eq!(config(56, 8), [1, 0, 0, 0, 0, 0, 0, 0], "and zeros for what is not offered");
    assert_eq!(config(32, 1), [1], "write back");
    let before = server.disk.stats().flushes_total;
    assert_eq!(guest.request(VIRTIO_BLK_T_OUT, 0, &[7; 512]).0, 0);
    assert_eq!(server.disk.stats().flushes_total, before);
    guest.monitor.set_config(32, flags, &[0]).unwrap();
    // It has no answer, but what follows it has.
    assert_eq!(guest.monitor.get_config(32, 1, flags, &[0]).unwrap().1, [0]);
    assert_eq!(guest.request(VIRTIO_BLK_T_OUT, 0, &[8; 512]).0, 0);
    assert_eq!(server.disk.stats().flushes_total, before + 1, "write through");
    drop(guest);
    let mut guest = Guest::connect(&server.socket);
    let features = guest.monitor.get_features().unwrap();
    assert!(features & 1 << VIRTIO_BLK_F_FLUSH != 0);
    let protocol = guest.monitor.get_protocol_features().unwrap();
    assert!(protocol.contains(VhostUserProtocolFeatures::CONFIG | VhostUserProtocolFeatures::MQ));
}

#[test]
fn a_door_closes_under_a_connection() {
    let mut server = serve();
    let mut guest = Guest::connect(&server.socket);
    assert_eq!(guest.request(VIRTIO_BLK_T_OUT, 0, &[1; 512]).0, 0);
    drop(server.frontend.take());
    assert!(!server.socket.exists());
    assert!(guest.monitor.get_features().is_err());
}

#[test]
fn sockets_of_the_dead_are_replaced_and_others_are_not() {
    let server = serve();
    let disk = || common::disk(MIB, false);
    let listen = |path: &Path, queues| VhostUserFrontend::listen(disk(), path, Some(queues));
    assert!(matches!(listen(&server.socket, 1), Err(VhostUserError::InUse)));
    let other = server.socket.with_file_name("dead.sock");
    drop(UnixListener::bind(&other).unwrap());
    assert!(other.exists());
    drop(listen(&other, 1).unwrap());
    std::fs::write(&other, "no socket").unwrap();
    assert!(matches!(listen(&other, 1), Err(VhostUserError::Socket(_))));
    assert_eq!(std::fs::read(&other).unwrap(), b"no socket");
    assert!(matches!(listen(&other, 0), Err(VhostUserError::Queues(0))));
    assert!(matches!(listen(&other, 65), Err(VhostUserError::Queues(65))));
    let nowhere = server.socket.with_file_name("no").join("disk.sock");
    assert!(matches!(listen(&nowhere, 1), Err(VhostUserError::Socket(_))));
}
