//! Requests built by hand, the ones a guest should send and the ones it should not.

use std::sync::Arc;

use virtio_bindings::bindings::virtio_ring::{
    VRING_DESC_F_INDIRECT, VRING_DESC_F_NEXT, VRING_DESC_F_WRITE,
};
use virtio_queue::desc::RawDescriptor;
use virtio_queue::desc::split::Descriptor;
use virtio_queue::mock::MockSplitQueue;
use vm_memory::{Bytes, GuestAddress};
use zfold_pool::PoolOptions;
use zfold_store::{CodecKind, Store, StoreOptions};

use super::*;
use crate::{DiskOptions, ExtentKind, SectorSize};

const READ: u16 = 0;
const WRITE: u16 = VRING_DESC_F_WRITE as u16;
const NEXT: u16 = VRING_DESC_F_NEXT as u16;
const INDIRECT: u16 = VRING_DESC_F_INDIRECT as u16;
/// Where requests lie in the guest's memory: behind the queue, before the end at 16 MiB.
const AREA: u64 = 1 << 20;
const MEMORY: u64 = 16 << 20;
/// A status that nobody wrote.
const UNTOUCHED: u8 = 0xAA;

const OK: u8 = VIRTIO_BLK_S_OK as u8;
const IOERR: u8 = VIRTIO_BLK_S_IOERR as u8;
const UNSUPP: u8 = VIRTIO_BLK_S_UNSUPP as u8;

/// A guest with a disk of 1024 pages.
struct Guest {
    disk: Disk,
    memory: GuestMemoryMmap,
    guest: super::Guest,
    write_through: bool,
}

/// What came back: the bytes said to be written, the status, the data.
#[derive(Debug, PartialEq, Eq)]
struct Reply {
    used: u32,
    status: u8,
    data: Vec<u8>,
}

fn guest(read_only: bool) -> Guest {
    let pool = zfold_pool::create("test", &PoolOptions::default()).unwrap();
    let store = Store::new(pool, &StoreOptions::new(1024, CodecKind::Lz4.into())).unwrap();
    let options =
        DiskOptions::new(1024 * 4096).with_sector(SectorSize::B512).with_read_only(read_only);
    let disk = Disk::new(Arc::new(store), &options).unwrap();
    let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), MEMORY as usize)]).unwrap();
    let guest = super::Guest::watch(memory.clone()).unwrap();
    Guest { disk, memory, guest, write_through: false }
}

fn header(kind: u32, sector: u64) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat()
}

fn range(sector: u64, sectors: u32, flags: u32) -> Vec<u8> {
    [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &flags.to_le_bytes()].concat()
}

fn descriptor(at: u64, len: u32, flags: u16, next: u16) -> RawDescriptor {
    RawDescriptor::from(Descriptor::new(at, len, flags, next))
}

impl Guest {
    /// Sends the given bytes, a descriptor each, with `room` bytes for data cut in two and one for
    /// the status.
    fn send(&self, parts: &[&[u8]], room: usize) -> Reply {
        let mut at = AREA;
        let mut descriptors = Vec::new();
        for part in parts {
            self.memory.write_slice(part, GuestAddress(at)).unwrap();
            descriptors.push(descriptor(at, part.len() as u32, READ, 0));
            at += part.len() as u64;
        }
        let data_at = at;
        self.memory.write_slice(&vec![UNTOUCHED; room + 1], GuestAddress(at)).unwrap();
        for len in [room / 2, room - room / 2, 1] {
            descriptors.push(descriptor(at, len as u32, WRITE, 0));
            at += len as u64;
        }
        let used = self.chain(&descriptors);
        let mut data = vec![0; room + 1];
        self.memory.read_slice(&mut data, GuestAddress(data_at)).unwrap();
        let status = data.pop().unwrap();
        Reply { used, status, data }
    }

    /// Serves a well-linked chain, and returns the bytes said to be written.
    fn chain(&self, descriptors: &[RawDescriptor]) -> u32 {
        let queue = MockSplitQueue::new(&self.memory, 256);
        self.serve(queue.build_desc_chain(descriptors).unwrap())
    }

    /// Serves a chain as it stands.
    fn raw_chain(&self, descriptors: &[RawDescriptor]) -> u32 {
        let queue = MockSplitQueue::new(&self.memory, 256);
        self.serve(queue.build_multiple_desc_chains(descriptors).unwrap())
    }

    fn serve(&self, chain: DescriptorChain<&GuestMemoryMmap>) -> u32 {
        let (disk, write_through) = (&self.disk, self.write_through);
        let (guest, buffer) = (&self.guest, &mut Vec::new());
        Server { disk, guest, write_through, buffer }.serve(chain)
    }

    fn write(&self, sector: u64, data: &[u8]) -> Reply {
        self.send(&[&header(VIRTIO_BLK_T_OUT, sector), data], 0)
    }

    fn read(&self, sector: u64, len: usize) -> Reply {
        self.send(&[&header(VIRTIO_BLK_T_IN, sector)], len)
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n / 7 % 251) as u8).collect()
}

#[test]
fn what_is_written_is_read_however_it_is_cut() {
    let guest = guest(false);
    let data = bytes(700 * 512);
    assert_eq!(guest.write(3, &data), Reply { used: 1, status: OK, data: vec![] });
    let reply = guest.read(3, data.len());
    assert_eq!((reply.used, reply.status), (data.len() as u32 + 1, OK));
    assert!(reply.data == data);

    let head = header(VIRTIO_BLK_T_OUT, 9);
    let parts: [&[u8]; 5] = [&head[..3], &[], &head[3..], &data[..1], &data[1..1024]];
    assert_eq!(guest.send(&parts, 0).status, OK);
    assert!(guest.read(9, 1024).data == data[..1024]);
    // The header and the data in one descriptor, the status behind the data in another.
    let together = [&header(VIRTIO_BLK_T_OUT, 20), &data[..512]].concat();
    assert_eq!(guest.send(&[&together], 0).status, OK);
    guest.memory.write_slice(&header(VIRTIO_BLK_T_IN, 20), GuestAddress(AREA)).unwrap();
    let chain = [descriptor(AREA, 16, READ, 0), descriptor(AREA + 16, 513, WRITE, 0)];
    assert_eq!(guest.chain(&chain), 513);
    let mut back = vec![0; 513];
    guest.memory.read_slice(&mut back, GuestAddress(AREA + 16)).unwrap();
    assert_eq!(back.pop(), Some(OK));
    assert!(back == data[..512]);
}

#[test]
fn indirect_descriptors_are_followed() {
    let guest = guest(false);
    guest.write(8, &bytes(512));
    guest.memory.write_slice(&header(VIRTIO_BLK_T_IN, 8), GuestAddress(AREA)).unwrap();
    let table = GuestAddress(AREA + 4096);
    let inner = [
        descriptor(AREA, 16, READ | NEXT, 1),
        descriptor(AREA + 512, 512, WRITE | NEXT, 2),
        descriptor(AREA + 1024, 1, WRITE, 0),
    ];
    for (n, inner) in inner.iter().enumerate() {
        guest.memory.write_obj(*inner, GuestAddress(table.0 + n as u64 * 16)).unwrap();
    }
    assert_eq!(guest.raw_chain(&[descriptor(table.0, 48, INDIRECT, 0)]), 513);
    let mut back = vec![0; 512];
    guest.memory.read_slice(&mut back, GuestAddress(AREA + 512)).unwrap();
    assert!(back == bytes(512));
    // A table that points to itself, one of a broken length, one outside memory.
    let own = descriptor(table.0, 16, INDIRECT, 0);
    guest.memory.write_obj(own, table).unwrap();
    assert_eq!(guest.raw_chain(&[own]), 0);
    assert_eq!(guest.raw_chain(&[descriptor(table.0, 17, INDIRECT, 0)]), 0);
    assert_eq!(guest.raw_chain(&[descriptor(MEMORY, 16, INDIRECT, 0)]), 0);
}

#[test]
fn flush_and_serial_number_are_answered() {
    let mut guest = guest(false);
    assert_eq!(guest.send(&[&header(VIRTIO_BLK_T_FLUSH, 0)], 0).status, OK);
    assert_eq!(guest.disk.stats().flushes_total, 1);
    let id = guest.send(&[&header(VIRTIO_BLK_T_GET_ID, 0)], 20);
    assert_eq!((id.used, id.status), (21, OK));
    assert_eq!(id.data, SERIAL);
    let short = guest.send(&[&header(VIRTIO_BLK_T_GET_ID, 0)], 4);
    assert_eq!((short.status, &short.data[..]), (OK, &b"zfol"[..]));
    let long = guest.send(&[&header(VIRTIO_BLK_T_GET_ID, 0)], 30);
    assert_eq!((long.status, long.data[20..].to_vec()), (OK, vec![UNTOUCHED; 10]));

    guest.write_through = true;
    guest.write(0, &bytes(512));
    assert_eq!(guest.disk.stats().flushes_total, 2, "a guest that cannot flush");
}

#[test]
fn discard_and_write_zeroes_free_or_keep() {
    let guest = guest(false);
    guest.write(0, &bytes(8 * 4096));
    let discard = header(VIRTIO_BLK_T_DISCARD, 0);
    let ranges = [range(0, 8, 0), range(16, 8, 0)].concat();
    assert_eq!(guest.send(&[&discard, &ranges], 0).status, OK);
    assert_eq!(guest.disk.store().len(), 6);
    let zeroes = header(VIRTIO_BLK_T_WRITE_ZEROES, 0);
    assert_eq!(guest.send(&[&zeroes, &range(24, 8, 1)], 0).status, OK);
    assert_eq!(guest.disk.store().len(), 5, "may be unmapped");
    assert_eq!(guest.send(&[&zeroes, &range(32, 16, 0)], 0).status, OK);
    assert_eq!(guest.disk.store().len(), 5, "may not be unmapped");
    let extents = guest.disk.extents(24 * 512, 24 * 512, 9).unwrap();
    let kinds: Vec<_> = extents.iter().map(|extent| extent.kind).collect();
    assert_eq!(kinds, [ExtentKind::Hole, ExtentKind::Zero]);
    assert!(guest.read(0, 8 * 512).data == vec![0; 8 * 512]);
    assert!(guest.read(8, 8 * 512).data == bytes(8 * 4096)[4096..8192]);
}

#[test]
fn bad_ranges_change_nothing_of_their_own() {
    let guest = guest(false);
    guest.write(0, &bytes(4096));
    let discard = header(VIRTIO_BLK_T_DISCARD, 0);
    let end = guest.disk.size() / 512;
    let many = range(0, 0, 0).repeat(RANGES_MAX as usize + 1);
    for (ranges, status) in [
        (vec![], IOERR),
        (range(0, 8, 0)[..15].to_vec(), IOERR),
        (many, IOERR),
        (range(end, 1, 0), IOERR),
        (range(u64::MAX, 1, 0), IOERR),
        (range(u64::MAX / 512, u32::MAX, 0), IOERR),
        (range(0, RANGE_SECTORS_MAX + 1, 0), IOERR),
        (range(0, 8, 1), UNSUPP),
        (range(0, 8, 2), UNSUPP),
    ] {
        assert_eq!(guest.send(&[&discard, &ranges], 0).status, status, "{ranges:?}");
    }
    let zeroes = header(VIRTIO_BLK_T_WRITE_ZEROES, 0);
    assert_eq!(guest.send(&[&zeroes, &range(0, 8, 4)], 0).status, UNSUPP);
    assert!(guest.read(0, 4096).data == bytes(4096));
}

#[test]
fn reads_and_writes_beyond_the_end_or_of_half_sectors_fail() {
    let guest = guest(false);
    let end = guest.disk.size() / 512;
    for sector in [end, u64::MAX, u64::MAX / 512, end - 1] {
        assert_eq!(guest.write(sector, &bytes(1024)).status, IOERR, "at {sector}");
        let reply = guest.read(sector, 1024);
        let untouched = vec![UNTOUCHED; 1024];
        assert_eq!(reply, Reply { used: 1, status: IOERR, data: untouched }, "at {sector}");
    }
    assert_eq!(guest.write(0, &bytes(511)).status, IOERR);
    assert_eq!(guest.read(0, 513).status, IOERR);
    assert!(guest.disk.store().is_empty());
}

#[test]
fn a_read_only_disk_takes_no_writes() {
    let guest = guest(true);
    assert_eq!(guest.write(0, &bytes(512)).status, IOERR);
    let discard = header(VIRTIO_BLK_T_DISCARD, 0);
    assert_eq!(guest.send(&[&discard, &range(0, 8, 0)], 0).status, IOERR);
    assert_eq!(guest.read(0, 512).status, OK);
}

#[test]
fn unknown_and_short_requests_are_answered() {
    let guest = guest(false);
    for kind in [2, 3, 5, 14, 15, u32::MAX] {
        assert_eq!(guest.send(&[&header(kind, 0)], 512).status, UNSUPP, "kind {kind}");
    }
    assert_eq!(guest.send(&[&header(VIRTIO_BLK_T_IN, 0)[..15]], 512).status, IOERR);
    assert_eq!(guest.send(&[], 512).status, IOERR);
}

#[test]
fn chains_that_break_the_queues_rules_are_handed_back() {
    let guest = guest(false);
    guest.write(0, &bytes(512));
    guest.memory.write_slice(&header(VIRTIO_BLK_T_IN, 0), GuestAddress(AREA)).unwrap();
    let head = |next| descriptor(AREA, 16, READ | NEXT, next);
    let data = descriptor(AREA + 512, 513, WRITE, 0);
    let at = GuestAddress(AREA + 1024);
    guest.memory.write_obj(UNTOUCHED, at).unwrap();

    assert_eq!(guest.raw_chain(&[descriptor(AREA, 16, READ, 0)]), 0, "no room for a status");
    assert_eq!(guest.raw_chain(&[head(0)]), 0, "a loop");
    assert_eq!(guest.raw_chain(&[head(300), data]), 0, "a link out of the table");
    let turning = [head(1), descriptor(AREA + 512, 513, WRITE | NEXT, 2), head(3), data];
    assert_eq!(guest.raw_chain(&turning), 0, "readable after writable");
    for at in [MEMORY - 100, MEMORY, u64::MAX - 10] {
        let outside = [descriptor(at, 513, WRITE, 0)];
        assert_eq!(guest.chain(&[&[head(1)], &outside[..]].concat()), 0, "outside, at {at}");
        let head = descriptor(at, 4096, READ, 0);
        assert_eq!(guest.chain(&[head, data]), 0, "a header outside, at {at}");
    }
    let long = descriptor(AREA + 512, u32::MAX, WRITE, 0);
    assert_eq!(guest.chain(&[head(1), long, data]), 0, "more than 4 GiB");
    assert_eq!(guest.memory.read_obj::<u8>(at).unwrap(), UNTOUCHED);
    // It still serves.
    assert_eq!(guest.chain(&[head(1), data]), 513);
}
