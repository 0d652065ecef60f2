//! The device as the protocol's library drives it: features, configuration, queues.
//!
//! - V1: the thread of a queue returns to its event loop whatever the guest does: a request is
//!   bounded, a queue whose indices make no sense is left alone until the next kick, and a device
//!   that is stopped serves no further request.
//! - V2: a request is taken, served and handed back under the lock of its queue. So a queue that
//!   has been stopped has no request under way.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};

use vhost::vhost_user::message::{VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use vhost_user_backend::{ShutdownHandle, VhostUserBackend, VhostUserDaemon, VringT};
use virtio_bindings::bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_CONFIG_WCE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH,
    VIRTIO_BLK_F_MQ, VIRTIO_BLK_F_RO, VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_TOPOLOGY,
    VIRTIO_BLK_F_WRITE_ZEROES,
};
use virtio_bindings::bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::bindings::virtio_ring::{
    VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC,
};
use virtio_queue::{QueueOwnedT, QueueT};
use vm_memory::{GuestAddressSpace, GuestMemoryMmap};
use vmm_sys_util::epoll::EventSet;
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};
use zfold_store::pool::{Lock, sound};

use super::lost::Guest;
use super::memory;
use super::request::{RANGE_SECTORS_MAX, RANGES_MAX, SECTOR, SEGMENTS_MAX, Server};
use super::vring::{Memory, Vring};
use crate::disk::Disk;

/// Entries of the largest queue that a monitor may set up.
const QUEUE_SIZE_MAX: usize = 1024;
/// Bytes of the configuration space, up to what version 1.1 of virtio knows.
const CONFIG_LEN: usize = 60;
/// Where the guest says whether writes may be cached.
const CONFIG_WCE_AT: usize = 32;

/// The device of one connection.
pub(super) struct Device {
    disk: Arc<Disk>,
    queues: u16,
    /// The guest's memory, as it was checked last.
    guest: RwLock<Guest>,
    /// Ends the connection.
    connection: Lock<Option<ShutdownHandle>>,
    /// The guest's choices in the configuration space.
    write_back: AtomicBool,
    /// Whether the guest knows how to flush.
    flushes: AtomicBool,
    stopping: AtomicBool,
    /// Ends the threads of the queues.
    stopped: EventFd,
    /// A buffer for each queue.
    buffers: Vec<Lock<Vec<u8>>>,
}

/// Why a queue cannot be served now.
#[derive(Debug)]
struct BrokenQueue;

impl From<virtio_queue::Error> for BrokenQueue {
    fn from(_: virtio_queue::Error) -> Self {
        Self
    }
}

impl From<io::Error> for BrokenQueue {
    fn from(_: io::Error) -> Self {
        Self
    }
}

impl Device {
    /// Returns a device with so many queues, each of which has a thread.
    pub(super) fn new(disk: Arc<Disk>, queues: u16) -> io::Result<Self> {
        Ok(Self {
            disk,
            queues,
            guest: RwLock::new(Guest::watch(GuestMemoryMmap::new())?),
            connection: Lock::default(),
            write_back: AtomicBool::new(true),
            flushes: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            stopped: EventFd::new(EFD_NONBLOCK)?,
            buffers: (0..queues).map(|_| Lock::default()).collect(),
        })
    }

    /// Lets the threads of `daemon`, which must be this device's, end when it is stopped.
    pub(super) fn attach(&self, daemon: &VhostUserDaemon<Arc<Self>>) -> io::Result<()> {
        let fd = self.stopped.as_raw_fd();
        let threads = daemon.get_epoll_handlers();
        threads.iter().try_for_each(|thread| {
            thread.register_listener(fd, EventSet::IN, self.stop_event().into())
        })
    }

    /// Says how to end the connection that the device has now.
    pub(super) fn connect(&self, connection: Option<ShutdownHandle>) {
        *self.connection.lock() = connection;
        if self.stopping() {
            self.disconnect();
        }
    }

    /// Ends the connection.
    fn disconnect(&self) {
        self.stopping.store(true, Ordering::Release);
        if let Some(connection) = &*self.connection.lock() {
            connection.shutdown();
        }
    }

    fn guest(&self) -> Guest {
        sound(self.guest.read()).clone()
    }

    /// Ends the threads of the queues, after the request each is at.
    pub(super) fn stop(&self) {
        // Release and Acquire are more than a flag needs, whose meaning does not depend on
        // anything else.
        self.stopping.store(true, Ordering::Release);
        // Fails only if the counter is full, and then the threads have been notified.
        let _ = self.stopped.write(1);
    }

    /// The number of the event that ends a queue's thread. Those up to the number of queues are the
    /// library's.
    fn stop_event(&self) -> u16 {
        self.queues + 1
    }

    fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Serves what a queue holds until it is empty.
    fn serve_queue(&self, vring: &Vring, thread: usize) -> Result<(), BrokenQueue> {
        let mut buffer = self.buffers.get(thread).ok_or(BrokenQueue)?.lock();
        let mut found_nothing = false;
        loop {
            vring.get_mut().get_queue_mut().disable_notification(&*self.guest())?;
            let mut served = 0_u64;
            while !self.stopping() && self.serve_next(vring, &mut buffer)? {
                served += 1;
            }
            if self.stopping() {
                return Ok(());
            }
            if !vring.get_mut().get_queue_mut().enable_notification(&*self.guest())? {
                return Ok(());
            }
            // More is said to have come. If nothing has, twice, the queue's indices are lies.
            if served == 0 && found_nothing {
                return Err(BrokenQueue);
            }
            found_nothing = served == 0;
        }
    }

    /// Serves the next request of a queue, and returns whether there was one.
    fn serve_next(&self, vring: &Vring, buffer: &mut Vec<u8>) -> Result<bool, BrokenQueue> {
        let mut state = vring.get_mut();
        if !state.is_enabled() {
            return Ok(false);
        }
        let guest = self.guest();
        let queue = state.get_queue_mut();
        let Some(chain) = queue.iter(guest.clone())?.next() else { return Ok(false) };
        let head = chain.head_index();
        let (disk, guest) = (&*self.disk, &guest);
        let write_through = self.write_through();
        let len = Server { disk, guest, write_through, buffer }.serve(chain);
        if guest.is_lost() {
            // Of this memory, whatever the guest has by now: the request has no answer.
            self.disconnect();
            return Err(BrokenQueue);
        }
        queue.add_used(&**guest, head, len)?;
        if queue.needs_notification(&**guest)? {
            state.signal_used_queue()?;
        }
        Ok(true)
    }

    fn write_through(&self) -> bool {
        // Relaxed: a change while requests are under way takes effect at any of them.
        !self.flushes.load(Ordering::Relaxed) || !self.write_back.load(Ordering::Relaxed)
    }

    /// Returns the configuration space, little-endian whatever the machine.
    fn config(&self) -> [u8; CONFIG_LEN] {
        let sector = self.disk.sector().bytes();
        let sectors_per_page = self.disk.page_len() as u32 / sector;
        let page_sectors = self.disk.page_len() as u32 / SECTOR as u32;
        let mut config = [0; CONFIG_LEN];
        let mut put = |at: usize, bytes: &[u8]| config[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &(self.disk.size() / SECTOR).to_le_bytes());
        put(12, &SEGMENTS_MAX.to_le_bytes());
        put(20, &sector.to_le_bytes());
        put(24, &[sectors_per_page.max(1).ilog2() as u8]);
        put(26, &(sectors_per_page as u16).to_le_bytes());
        put(CONFIG_WCE_AT, &[self.write_back.load(Ordering::Relaxed).into()]);
        put(34, &self.queues.to_le_bytes());
        put(36, &RANGE_SECTORS_MAX.to_le_bytes());
        put(40, &RANGES_MAX.to_le_bytes());
        put(44, &page_sectors.to_le_bytes());
        put(48, &RANGE_SECTORS_MAX.to_le_bytes());
        put(52, &RANGES_MAX.to_le_bytes());
        put(56, &[1]);
        config
    }
}

impl VhostUserBackend for Device {
    type Bitmap = ();
    type Vring = Vring;

    fn num_queues(&self) -> usize {
        self.queues.into()
    }

    fn max_queue_size(&self) -> usize {
        QUEUE_SIZE_MAX
    }

    fn features(&self) -> u64 {
        let read_only = self.disk.read_only().then_some(VIRTIO_BLK_F_RO);
        let always = [
            VIRTIO_F_VERSION_1,
            VIRTIO_RING_F_EVENT_IDX,
            VIRTIO_RING_F_INDIRECT_DESC,
            VIRTIO_BLK_F_SEG_MAX,
            VIRTIO_BLK_F_BLK_SIZE,
            VIRTIO_BLK_F_TOPOLOGY,
            VIRTIO_BLK_F_FLUSH,
            VIRTIO_BLK_F_CONFIG_WCE,
            VIRTIO_BLK_F_MQ,
            VIRTIO_BLK_F_DISCARD,
            VIRTIO_BLK_F_WRITE_ZEROES,
        ];
        let bits = always.into_iter().chain(read_only).fold(0, |bits, bit| bits | 1 << bit);
        bits | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits()
    }

    fn acked_features(&self, features: u64) {
        self.flushes.store(features & (1 << VIRTIO_BLK_F_FLUSH) != 0, Ordering::Relaxed);
    }

    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::REPLY_ACK
    }

    fn reset_device(&self) {
        self.write_back.store(true, Ordering::Relaxed);
    }

    fn set_event_idx(&self, _enabled: bool) {
        // The queues know.
    }

    fn get_config(&self, offset: u32, size: u32) -> Vec<u8> {
        // Fields of later versions, which no feature offers, are zeros.
        let config = self.config().into_iter().chain(std::iter::repeat(0));
        config.skip(offset as usize).take(size as usize).collect()
    }

    fn set_config(&self, offset: u32, bytes: &[u8]) -> io::Result<()> {
        // The one field a guest may write.
        match (offset as usize, bytes) {
            (CONFIG_WCE_AT, &[wce @ (0 | 1)]) => {
                self.write_back.store(wce == 1, Ordering::Relaxed);
                Ok(())
            }
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    fn update_memory(&self, memory: Memory) -> io::Result<()> {
        let memory = GuestMemoryMmap::clone(&memory.memory());
        memory::check(&memory)?;
        let memory = Guest::watch(memory)?;
        let mut guest = sound(self.guest.write());
        // It does not come back: the guest's answers and requests went with it.
        if guest.is_lost() {
            return Err(io::Error::other("the guest's memory was taken away"));
        }
        *guest = memory;
        Ok(())
    }

    fn queues_per_thread(&self) -> Vec<u64> {
        (0..self.queues).map(|queue| 1 << queue).collect()
    }

    fn handle_event(
        &self,
        event: u16,
        _: EventSet,
        vrings: &[Self::Vring],
        thread: usize,
    ) -> io::Result<()> {
        if event == self.stop_event() {
            // An error is what ends the thread.
            return Err(io::ErrorKind::Interrupted.into());
        }
        if let Some(vring) = vrings.get(usize::from(event)) {
            // A queue that broke is its guest's trouble (V1).
            let _ = self.serve_queue(vring, thread);
            if self.guest().is_lost() {
                self.disconnect();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
