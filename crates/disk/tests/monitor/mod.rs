//! A server of vhost-user, and a monitor with a guest for it.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tempfile::TempDir;
use vhost::vhost_user::{Frontend, VhostUserFrontend as _};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use virtio_bindings::bindings::virtio_blk::VIRTIO_BLK_T_IN;
use vm_memory::{
    Bytes, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion,
};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};
use zfold_disk::Disk;
use zfold_disk::vhost_user::VhostUserFrontend;
use zfold_testing::wait::{PATIENCE, wait_until};

use crate::common;

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const MEMORY: u64 = 4 * MIB;
pub(crate) const QUEUE: u16 = 16;
/// Where the parts of the queue lie in the guest's memory, and a request behind them.
pub(crate) const TABLE: u64 = 0x1000;
pub(crate) const AVAILABLE: u64 = 0x2000;
pub(crate) const USED: u64 = 0x3000;
pub(crate) const REQUEST: u64 = 0x10_0000;
/// Bytes from one request to the next, where there are several.
const SLOT: u64 = 0x4000;

pub(crate) struct Server {
    pub(crate) disk: Arc<Disk>,
    pub(crate) frontend: Option<VhostUserFrontend>,
    pub(crate) socket: PathBuf,
    _dir: TempDir,
}

pub(crate) fn serve() -> Server {
    let disk = common::disk(16 * MIB, false);
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("disk.sock");
    let frontend = Some(listen(&disk, &socket));
    Server { disk, frontend, socket, _dir: dir }
}

pub(crate) fn listen(disk: &Arc<Disk>, socket: &Path) -> VhostUserFrontend {
    VhostUserFrontend::listen(disk.clone(), socket, Some(2)).unwrap()
}

/// A monitor with a guest of one queue.
pub(crate) struct Guest {
    pub(crate) monitor: Frontend,
    pub(crate) memory: GuestMemoryMmap,
    pub(crate) kick: EventFd,
    pub(crate) call: EventFd,
    /// Becomes ready when `call` is.
    calls: Epoll,
    pub(crate) sent: u16,
}

impl Guest {
    pub(crate) fn connect(socket: &Path) -> Self {
        let mut guest = Self::shake_hands(socket);
        guest.start();
        guest
    }

    /// Connects and agrees on features.
    pub(crate) fn shake_hands(socket: &Path) -> Self {
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
        Self { monitor, memory, kick, call, calls, sent: 0 }
    }

    /// The file of the guest's memory.
    pub(crate) fn file(&self) -> &File {
        self.memory.iter().next().unwrap().file_offset().unwrap().file()
    }

    /// The guest's memory as a monitor describes it.
    pub(crate) fn region(&self) -> VhostUserMemoryRegionInfo {
        VhostUserMemoryRegionInfo {
            guest_phys_addr: 0,
            memory_size: MEMORY,
            userspace_addr: self.memory.get_host_address(GuestAddress(0)).unwrap().addr() as u64,
            mmap_offset: 0,
            mmap_handle: self.file().as_raw_fd(),
        }
    }

    /// Hands over the memory and the queue.
    pub(crate) fn start(&mut self) {
        self.start_at(0);
    }

    /// Connects to another server with the same memory, as cloud-hypervisor does: the queue begins
    /// behind all that the guest has sent.
    pub(crate) fn connect_again(&mut self, socket: &Path) {
        // One monitor is served at a time, so this one's connection ends first.
        let (nobody, _) = UnixStream::pair().unwrap();
        self.monitor = Frontend::from_stream(nobody, 2);
        self.monitor = Self::shake_hands(socket).monitor;
        self.start_at(self.sent);
    }

    fn start_at(&mut self, base: u16) {
        let region = self.region();
        let userspace = region.userspace_addr;
        self.monitor.set_mem_table(&[region]).unwrap();
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
        self.monitor.set_vring_base(0, base).unwrap();
        self.monitor.set_vring_call(0, &self.call).unwrap();
        self.monitor.set_vring_kick(0, &self.kick).unwrap();
        self.monitor.set_vring_enable(0, true).unwrap();
    }

    /// Writes a descriptor: where, how long, whether it is for the device to write, whether
    /// another one follows.
    pub(crate) fn descriptor(&self, n: u16, at: u64, len: u32, writable: bool, last: bool) {
        let flags = u16::from(writable) << 1 | u16::from(!last);
        let next = if last { 0 } else { n + 1 };
        let head = [&at.to_le_bytes()[..], &len.to_le_bytes()].concat();
        let tail = [flags.to_le_bytes(), next.to_le_bytes()].concat();
        let slot = GuestAddress(TABLE + u64::from(n) * 16);
        self.memory.write_slice(&[head, tail].concat(), slot).unwrap();
    }

    /// Puts the chain that begins with descriptor `head` into the queue, and says so.
    pub(crate) fn submit(&mut self, head: u16) {
        self.offer(head);
        self.kick.write(1).unwrap();
    }

    /// Puts the chain that begins with descriptor `head` into the queue.
    pub(crate) fn offer(&mut self, head: u16) {
        let slot = AVAILABLE + 4 + u64::from(self.sent % QUEUE) * 2;
        self.memory.write_obj(head, GuestAddress(slot)).unwrap();
        self.sent = self.sent.wrapping_add(1);
        let at = GuestAddress(AVAILABLE + 2);
        self.memory.store(self.sent, at, Ordering::Release).unwrap();
    }

    /// Waits until all chains have come back.
    pub(crate) fn wait(&self) {
        let began = Instant::now();
        loop {
            if self.used() == self.sent {
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
    pub(crate) fn request(&mut self, kind: u32, sector: u64, data: &[u8]) -> (u8, Vec<u8>) {
        self.prepare(kind, sector, data);
        self.submit(0);
        self.wait();
        self.received(data.len())
    }

    /// Returns the status and the data of the last request, which had so many bytes.
    pub(crate) fn received(&self, len: usize) -> (u8, Vec<u8>) {
        self.received_in(0, len)
    }

    /// The same of the last request in a slot.
    pub(crate) fn received_in(&self, slot: u16, len: usize) -> (u8, Vec<u8>) {
        let data_at = REQUEST + u64::from(slot) * SLOT + 16;
        let mut back = vec![0; len];
        self.memory.read_slice(&mut back, GuestAddress(data_at)).unwrap();
        let status_at = data_at + len as u64;
        (self.memory.read_obj(GuestAddress(status_at)).unwrap(), back)
    }

    /// Writes a request into the guest's memory, its descriptors from the first on.
    pub(crate) fn prepare(&mut self, kind: u32, sector: u64, data: &[u8]) {
        self.prepare_in(0, kind, sector, data);
    }

    /// The same in one of several slots: their chains begin with each third descriptor.
    pub(crate) fn prepare_in(&mut self, slot: u16, kind: u32, sector: u64, data: &[u8]) {
        let header = [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat();
        let at = REQUEST + u64::from(slot) * SLOT;
        self.memory.write_slice(&header, GuestAddress(at)).unwrap();
        let data_at = at + 16;
        self.memory.write_slice(data, GuestAddress(data_at)).unwrap();
        let status_at = data_at + data.len() as u64;
        self.memory.write_obj(0xAA_u8, GuestAddress(status_at)).unwrap();
        let first = slot * 3;
        self.descriptor(first, at, 16, false, false);
        self.descriptor(first + 1, data_at, data.len() as u32, kind == VIRTIO_BLK_T_IN, false);
        self.descriptor(first + 2, status_at, 1, true, true);
    }

    /// Returns how many chains have come back, modulo the numbers of a word.
    pub(crate) fn used(&self) -> u16 {
        self.memory.load(GuestAddress(USED + 2), Ordering::Acquire).unwrap()
    }

    /// Returns the head of the chain that came back as the `n`th.
    pub(crate) fn used_head(&self, n: u16) -> u32 {
        self.memory.read_obj(GuestAddress(USED + 4 + u64::from(n % QUEUE) * 8)).unwrap()
    }

    /// Kicks until the server has hung up.
    pub(crate) fn wait_for_the_end(&self) {
        wait_until("the connection has ended", || {
            self.kick.write(1).unwrap();
            self.monitor.get_features().is_err()
        });
    }
}
