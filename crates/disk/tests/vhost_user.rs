//! The vhost-user frontend, through its socket, with a monitor and a guest made here.
//!
//! - What one connection writes, the next one reads: the device outlives its monitors.
//! - The configuration says what the device can do.
//! - A monitor that talks nonsense does not end the server.

mod common;

use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::Numbers;
use tempfile::TempDir;
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserProtocolFeatures};
use vhost::vhost_user::{Frontend, VhostUserFrontend as _};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use virtio_bindings::bindings::virtio_blk::{
    VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT,
};
use vm_memory::{
    Bytes, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion,
};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};
use zfold_disk::Disk;
use zfold_disk::vhost_user::{VhostUserError, VhostUserFrontend, VhostUserOptions};

const MIB: u64 = 1 << 20;
const MEMORY: u64 = 4 * MIB;
const QUEUE: u16 = 16;
/// Where the parts of the queue lie in the guest's memory, and a request behind them.
const TABLE: u64 = 0x1000;
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x3000;
const REQUEST: u64 = 0x10_0000;
/// Longer than anything here takes on the busiest machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct Server {
    disk: Arc<Disk>,
    frontend: Option<VhostUserFrontend>,
    socket: PathBuf,
    _dir: TempDir,
}

fn serve() -> Server {
    let disk = common::disk(16 * MIB, false);
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("disk.sock");
    let options = VhostUserOptions::default().with_queues(2).with_queue_size(64).with_serial("s");
    let frontend = Some(VhostUserFrontend::listen(disk.clone(), &socket, options).unwrap());
    Server { disk, frontend, socket, _dir: dir }
}

/// A monitor with a guest of one queue.
struct Guest {
    monitor: Frontend,
    memory: GuestMemoryMmap,
    kick: EventFd,
    call: EventFd,
    /// Becomes ready when `call` is.
    calls: Epoll,
    sent: u16,
}

impl Guest {
    fn connect(socket: &Path) -> Self {
        let mut monitor = Frontend::connect(socket, 2).unwrap();
        monitor.set_owner().unwrap();
        let features = monitor.get_features().unwrap();
        // What the monitor and the guest ask for, without which a queue's events come for every
        // request.
        let event_idx = 1 << 29;
        monitor.set_features(features & !event_idx).unwrap();
        let protocol = monitor.get_protocol_features().unwrap();
        monitor.set_protocol_features(protocol).unwrap();
        assert_eq!(monitor.get_queue_num().unwrap(), 2);
        let file = tempfile::tempfile().unwrap();
        file.set_len(MEMORY).unwrap();
        let range = (GuestAddress(0), MEMORY as usize, Some(FileOffset::new(file, 0)));
        let memory = GuestMemoryMmap::from_ranges_with_files([range]).unwrap();
        let (kick, call) = (EventFd::new(0).unwrap(), EventFd::new(EFD_NONBLOCK).unwrap());
        let calls = Epoll::new().unwrap();
        let event = EpollEvent::new(EventSet::IN, 0);
        calls.ctl(ControlOperation::Add, call.as_raw_fd(), event).unwrap();
        let mut guest = Self { monitor, memory, kick, call, calls, sent: 0 };
        guest.start();
        guest
    }

    /// Hands over the memory and the queue.
    fn start(&mut self) {
        let region = self.memory.iter().next().unwrap();
        let userspace = self.memory.get_host_address(GuestAddress(0)).unwrap().addr() as u64;
        let regions = [VhostUserMemoryRegionInfo {
            guest_phys_addr: 0,
            memory_size: region.len(),
            userspace_addr: userspace,
            mmap_offset: 0,
            mmap_handle: region.file_offset().unwrap().file().as_raw_fd(),
        }];
        self.monitor.set_mem_table(&regions).unwrap();
        self.monitor.set_vring_num(0, QUEUE).unwrap();
        let ring = VringConfigData {
            queue_max_size: QUEUE,
            queue_size: QUEUE,
            flags: 0,
            desc_table_addr: userspace + TABLE,
            used_ring_addr: userspace + USED,
            avail_ring_addr: userspace + AVAILABLE,
            log_addr: None,
        };
        self.monitor.set_vring_addr(0, &ring).unwrap();
        self.monitor.set_vring_base(0, 0).unwrap();
        self.monitor.set_vring_call(0, &self.call).unwrap();
        self.monitor.set_vring_kick(0, &self.kick).unwrap();
        self.monitor.set_vring_enable(0, true).unwrap();
    }

    /// Writes a descriptor: where, how long, whether it is for the device to write, whether
    /// another one follows.
    fn descriptor(&self, n: u16, at: u64, len: u32, writable: bool, last: bool) {
        let flags = u16::from(writable) << 1 | u16::from(!last);
        let next = if last { 0 } else { n + 1 };
        let head = [&at.to_le_bytes()[..], &len.to_le_bytes()].concat();
        let tail = [flags.to_le_bytes(), next.to_le_bytes()].concat();
        let slot = GuestAddress(TABLE + u64::from(n) * 16);
        self.memory.write_slice(&[head, tail].concat(), slot).unwrap();
    }

    /// Puts the chain that begins with descriptor `head` into the queue.
    fn submit(&mut self, head: u16) {
        let slot = AVAILABLE + 4 + u64::from(self.sent % QUEUE) * 2;
        self.memory.write_obj(head, GuestAddress(slot)).unwrap();
        self.sent = self.sent.wrapping_add(1);
        let at = GuestAddress(AVAILABLE + 2);
        self.memory.store(self.sent, at, std::sync::atomic::Ordering::Release).unwrap();
        self.kick.write(1).unwrap();
    }

    /// Waits until all chains have come back.
    fn wait(&self) {
        let began = Instant::now();
        loop {
            let at = GuestAddress(USED + 2);
            let used: u16 = self.memory.load(at, std::sync::atomic::Ordering::Acquire).unwrap();
            if used == self.sent {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "no answer");
            let mut events = [EpollEvent::default()];
            self.calls.wait(PATIENCE.as_millis() as i32, &mut events).unwrap();
            let _ = self.call.read();
        }
    }

    /// Sends a request with `data` to write, or as much room to read, and returns the status and
    /// the data.
    fn request(&mut self, kind: u32, sector: u64, data: &[u8]) -> (u8, Vec<u8>) {
        let header = [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat();
        self.memory.write_slice(&header, GuestAddress(REQUEST)).unwrap();
        let data_at = REQUEST + 16;
        self.memory.write_slice(data, GuestAddress(data_at)).unwrap();
        let status_at = data_at + data.len() as u64;
        self.memory.write_obj(0xAA_u8, GuestAddress(status_at)).unwrap();
        self.descriptor(0, REQUEST, 16, false, false);
        self.descriptor(1, data_at, data.len() as u32, kind == VIRTIO_BLK_T_IN, false);
        self.descriptor(2, status_at, 1, true, true);
        self.submit(0);
        self.wait();
        let mut back = vec![0; data.len()];
        self.memory.read_slice(&mut back, GuestAddress(data_at)).unwrap();
        (self.memory.read_obj(GuestAddress(status_at)).unwrap(), back)
    }
}

#[test]
fn the_device_outlives_its_monitors() {
    let server = serve();
    let data = Numbers::new(1).bytes(64 << 10);
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
    // The device grows, and the next monitor sees it.
    server.disk.grow(17 * MIB).unwrap();
    drop(guest);
    let mut guest = Guest::connect(&server.socket);
    let size = guest.monitor.get_config(0, 8, flags, &[0; 8]).unwrap().1;
    assert_eq!(size, (17 * MIB / 512).to_le_bytes());
    let features = guest.monitor.get_features().unwrap();
    assert!(features & 1 << VIRTIO_BLK_F_FLUSH != 0);
    let protocol = guest.monitor.get_protocol_features().unwrap();
    assert!(protocol.contains(VhostUserProtocolFeatures::CONFIG | VhostUserProtocolFeatures::MQ));
}

#[test]
fn a_monitor_that_talks_nonsense_is_shown_out() {
    let server = serve();
    for seed in 0..30 {
        let mut numbers = Numbers::new(seed);
        let mut stream = UnixStream::connect(&server.socket).unwrap();
        let len = numbers.below(300) as usize;
        let mut bytes = numbers.bytes(len);
        if len > 12 {
            // A header that is in order, of a request that exists, with a body that is not.
            bytes[..4].copy_from_slice(&(numbers.below(45) as u32).to_le_bytes());
            bytes[4..8].copy_from_slice(&1_u32.to_le_bytes());
            bytes[8..12].copy_from_slice(&(len as u32 - 12).to_le_bytes());
        }
        // The server may have hung up.
        let _ = stream.write_all(&bytes);
    }
    let mut guest = Guest::connect(&server.socket);
    assert_eq!(guest.request(VIRTIO_BLK_T_OUT, 0, &[1; 512]).0, 0);
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
    let listen = |path: &Path, queues, queue_size| {
        let options = VhostUserOptions::default().with_queues(queues).with_queue_size(queue_size);
        VhostUserFrontend::listen(disk(), path, options)
    };
    assert!(matches!(listen(&server.socket, 1, 64), Err(VhostUserError::InUse)));
    let other = server.socket.with_file_name("dead.sock");
    drop(UnixListener::bind(&other).unwrap());
    assert!(other.exists());
    drop(listen(&other, 1, 64).unwrap());
    std::fs::write(&other, "no socket").unwrap();
    assert!(matches!(listen(&other, 1, 64), Err(VhostUserError::Socket(_))));
    assert_eq!(std::fs::read(&other).unwrap(), b"no socket");
    assert!(matches!(listen(&other, 0, 64), Err(VhostUserError::Queues(0))));
    assert!(matches!(listen(&other, 65, 64), Err(VhostUserError::Queues(65))));
    assert!(matches!(listen(&other, 1, 100), Err(VhostUserError::QueueSize(100))));
    let nowhere = server.socket.with_file_name("no").join("disk.sock");
    assert!(matches!(listen(&nowhere, 1, 64), Err(VhostUserError::Socket(_))));
}
