//! Queues as a guest should fill them, and as one should not, served on the test's own thread.

use vm_memory::{Bytes, FileOffset, GuestAddress};
use zfold_pool::PoolOptions;
use zfold_store::{CodecKind, Store, StoreOptions};

use super::*;
use crate::{DiskOptions, SectorSize};

const MEMORY: u64 = 1 << 20;
const QUEUE: u16 = 16;
const TABLE: u64 = 0x1000;
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x3000;
/// Where headers of requests lie, one behind the other.
const HEADERS: u64 = 0x1_0000;
const HEADERS_END: u64 = 0x2_0000;

struct Bench {
    device: Device,
    vring: Vring,
    disk: Arc<Disk>,
    memory: GuestMemoryMmap,
}

fn bench() -> Bench {
    let pool = zfold_pool::create("test", &PoolOptions::default()).unwrap();
    let store = Store::new(pool, &StoreOptions::new(64, CodecKind::Lz4.into())).unwrap();
    let options = DiskOptions::new(64 * 4096).with_sector(SectorSize::B512);
    let disk = Arc::new(Disk::new(Arc::new(store), &options).unwrap());
    let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), MEMORY as usize)]).unwrap();
    let shared = Memory::new(memory.clone());
    let device = Device::new(disk.clone(), 2).unwrap();
    device.update_memory(shared.clone()).unwrap();
    let vring = Vring::new(shared, QUEUE).unwrap();
    vring.set_queue_size(QUEUE);
    vring.set_queue_info(TABLE, AVAILABLE, USED).unwrap();
    vring.set_queue_ready(true);
    vring.set_enabled(true);
    Bench { device, vring, disk, memory }
}

impl Bench {
    fn descriptor(&self, slot: u16, at: u64, len: u32, flags: u16, next: u16) {
        let tail = [flags.to_le_bytes(), next.to_le_bytes()].concat();
        let bytes = [&at.to_le_bytes()[..], &len.to_le_bytes(), &tail].concat();
        let address = GuestAddress(TABLE + u64::from(slot) * 16);
        self.memory.write_slice(&bytes, address).unwrap();
    }

    fn entry(&self, n: u16, head: u16) {
        let address = GuestAddress(AVAILABLE + 4 + u64::from(n % QUEUE) * 2);
        self.memory.write_obj(head, address).unwrap();
    }

    fn publish(&self, count: u16) {
        self.memory.write_obj(count, GuestAddress(AVAILABLE + 2)).unwrap();
    }

    fn used(&self) -> u16 {
        self.memory.read_obj(GuestAddress(USED + 2)).unwrap()
    }

    fn kick(&self) -> io::Result<()> {
        self.device.handle_event(0, EventSet::IN, std::slice::from_ref(&self.vring), 0)
    }

    /// Puts a flush into slots 0 and 1, and as many chains of it into the queue as fit.
    fn fill_with_flushes(&self) {
        let header = [4_u32, 0, 0, 0].map(u32::to_le_bytes).concat();
        self.memory.write_slice(&header, GuestAddress(HEADERS)).unwrap();
        self.descriptor(0, HEADERS, 16, 1, 1);
        self.descriptor(1, HEADERS + 16, 1, 2, 0);
        (0..QUEUE).for_each(|n| self.entry(n, 0));
    }
}

#[test]
fn a_kick_serves_all_that_the_queue_holds() {
    let bench = bench();
    bench.fill_with_flushes();
    bench.publish(QUEUE);
    bench.kick().unwrap();
    assert_eq!((bench.used(), bench.disk.stats().flushes_total), (QUEUE, u64::from(QUEUE)));
    bench.kick().unwrap();
    assert_eq!(bench.used(), QUEUE, "nothing more to do");
    bench.publish(QUEUE + 3);
    bench.kick().unwrap();
    assert_eq!(bench.used(), QUEUE + 3);
}

/// The monitor names the index up to which the guest has sent.
#[test]
fn what_a_lost_server_carried_out_but_did_not_answer_is_carried_out_again() {
    let bench = bench();
    bench.fill_with_flushes();
    bench.publish(3);
    bench.kick().unwrap();
    bench.memory.write_obj(2_u16, GuestAddress(USED + 2)).unwrap();
    let next = Vring::new(Memory::new(bench.memory.clone()), QUEUE).unwrap();
    next.set_queue_size(QUEUE);
    next.set_queue_info(TABLE, AVAILABLE, USED).unwrap();
    next.set_queue_next_used(next.queue_used_idx().unwrap());
    next.set_queue_next_avail(3);
    next.set_queue_ready(true);
    next.set_enabled(true);
    next.set_kick(None);
    bench.device.handle_event(0, EventSet::IN, std::slice::from_ref(&next), 0).unwrap();
    assert_eq!((bench.used(), bench.disk.stats().flushes_total), (3, 3 + 1));
}

#[test]
fn a_queue_that_is_off_is_left_alone() {
    let bench = bench();
    bench.fill_with_flushes();
    bench.publish(1);
    bench.vring.set_enabled(false);
    bench.kick().unwrap();
    bench.vring.set_enabled(true);
    bench.vring.set_queue_ready(false);
    bench.kick().unwrap();
    assert_eq!(bench.used(), 0);
    bench.vring.set_queue_ready(true);
    bench.kick().unwrap();
    assert_eq!(bench.used(), 1);
}

#[test]
fn a_device_that_is_stopped_serves_nothing() {
    let bench = bench();
    bench.fill_with_flushes();
    bench.publish(1);
    bench.device.stop();
    bench.kick().unwrap();
    assert_eq!(bench.used(), 0);
    let vrings = std::slice::from_ref(&bench.vring);
    let end = bench.device.handle_event(bench.device.stop_event(), EventSet::IN, vrings, 0);
    assert!(end.is_err(), "the thread's end");
}

#[test]
fn a_guest_that_lost_its_memory_gets_no_other() {
    let bench = bench();
    let good = || Memory::new(bench.memory.clone());
    let file = tempfile::tempfile().unwrap();
    file.set_len(MEMORY).unwrap();
    let place = FileOffset::new(file.try_clone().unwrap(), 0);
    let range = (GuestAddress(0), MEMORY as usize, Some(place));
    let memory = GuestMemoryMmap::from_ranges_with_files([range]).unwrap();
    // One table after the other, while nothing is lost.
    bench.device.update_memory(good()).unwrap();
    bench.device.update_memory(Memory::new(memory)).unwrap();
    file.set_len(0).unwrap();
    bench.kick().unwrap();
    bench.device.update_memory(good()).unwrap_err();
    bench.fill_with_flushes();
    bench.publish(1);
    bench.kick().unwrap();
    assert_eq!((bench.used(), bench.device.stopping()), (0, true));
}

#[test]
fn indices_that_lie_end_the_kick_and_not_the_queue() {
    let bench = bench();
    bench.fill_with_flushes();
    for lie in [QUEUE + 1, 30_000, u16::MAX] {
        bench.publish(lie);
        bench.kick().unwrap();
        assert_eq!(bench.used(), 0, "{lie} chains");
    }
    // A chain that begins outside the table is taken and cannot be handed back.
    bench.entry(0, QUEUE);
    bench.publish(1);
    bench.kick().unwrap();
    assert_eq!(bench.used(), 0);
    bench.publish(2);
    bench.kick().unwrap();
    assert_eq!(bench.used(), 1);
    // Rings outside the memory.
    bench.vring.set_queue_info(TABLE, MEMORY - 2, USED).unwrap();
    bench.kick().unwrap();
    bench.vring.set_queue_info(TABLE, AVAILABLE, MEMORY).unwrap();
    bench.publish(3);
    bench.kick().unwrap();
    bench.vring.set_queue_info(MEMORY, AVAILABLE, USED).unwrap();
    bench.publish(4);
    bench.kick().unwrap();
    assert_eq!(bench.disk.stats().flushes_total, 1, "the one that could be answered");
}

#[test]
fn queues_of_nonsense_are_survived() {
    let (mut reads, mut writes) = (0, 0);
    for seed in 0..40_u64 {
        let bench = bench();
        let mut random = zfold_testing::Random::new(seed);
        let mut below = |bound: u64| random.below(bound);
        for at in (HEADERS..HEADERS_END).step_by(16) {
            let header = [below(16) as u32, 0, below(600) as u32, 0].map(u32::to_le_bytes);
            bench.memory.write_slice(&header.concat(), GuestAddress(at)).unwrap();
        }
        for round in 0..100 {
            for slot in 0..QUEUE {
                // Header, data and status, each of their fields wrong one time in six.
                let part = usize::from(slot % 3);
                let good_at = HEADERS + below((HEADERS_END - HEADERS) / 16) * 16;
                let good_len = [16, [512, 4096][below(2) as usize], 1][part];
                let good_flags = [1, [1, 3][below(2) as usize], 2][part];
                let pick = |good: u64, bad: u64, dice: u64| if dice == 0 { bad } else { good };
                let bad_at = [MEMORY - 8, below(u64::MAX)][below(2) as usize];
                let at = pick(good_at, bad_at, below(6));
                let len = pick(good_len, below(1 << 32), below(6)) as u32;
                let flags = pick(good_flags, below(8), below(6)) as u16;
                let next = pick(u64::from(slot) + 1, below(20), below(6)) as u16;
                bench.descriptor(slot, at, len, flags, next);
                let head = u64::from(slot) / 3 * 3;
                bench.entry(slot, pick(head, below(u64::from(QUEUE) + 1), below(6)) as u16);
            }
            let taken = bench.vring.queue_next_avail();
            let more = [1, QUEUE, below(1 << 16) as u16][below(3) as usize];
            bench.publish(taken.wrapping_add(more));
            bench.kick().unwrap_or_else(|error| panic!("seed {seed}, round {round}: {error}"));
        }
        bench.disk.store().check();
        reads += bench.disk.stats().reads_total;
        writes += bench.disk.stats().writes_total;
    }
    assert!(reads > 0 && writes > 0, "{reads} reads, {writes} writes: not all is nonsense");
}

#[test]
fn the_configuration_takes_the_one_field_it_should() {
    let bench = bench();
    let device = &bench.device;
    assert_eq!(device.get_config(0, 60), device.config());
    assert_eq!(device.get_config(56, 8), [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(device.get_config(u32::MAX, 4), [0; 4]);
    device.acked_features(1 << VIRTIO_BLK_F_FLUSH);
    assert!(!device.write_through());
    for (offset, bytes) in [(0, &[0][..]), (32, &[2]), (32, &[0, 0]), (33, &[0])] {
        assert!(device.set_config(offset, bytes).is_err(), "{bytes:?} at {offset}");
    }
    device.set_config(32, &[0]).unwrap();
    assert!(device.write_through());
    device.reset_device();
    assert!(!device.write_through());
    device.acked_features(0);
    assert!(device.write_through(), "a guest that cannot flush");
}
