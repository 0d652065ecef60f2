//! Tests of the device.

use super::*;
use zfold_pool::PoolOptions;
use zfold_store::{CodecKind, StoreOptions};

const PAGE: u64 = 4096;

fn disk(pages: u64) -> Disk {
    let pool = zfold_pool::create("test", &PoolOptions::default()).unwrap();
    let store = Store::new(pool, &StoreOptions::new(pages * 2, CodecKind::Lz4.into())).unwrap();
    Disk::new(Arc::new(store), &options(pages * PAGE)).unwrap()
}

fn options(size: u64) -> DiskOptions {
    DiskOptions::new(size).with_sector(SectorSize::B512)
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n / 7 % 251) as u8).collect()
}

fn read(disk: &Disk, offset: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0xEE; len];
    disk.read(offset, &mut out).unwrap();
    out
}

#[test]
fn write_zeroes_leaves_holes_unless_forbidden() {
    let disk = disk(8);
    disk.write(0, &bytes(8 * 4096)).unwrap();
    disk.write_zeroes(0, 2 * PAGE, Holes::Allow).unwrap();
    disk.write_zeroes(2 * PAGE, 2 * PAGE, Holes::Forbid).unwrap();
    let extent = |len, kind| Extent { len: len * PAGE, kind };
    let (hole, zero) = (extent(2, ExtentKind::Hole), extent(2, ExtentKind::Zero));
    let all = [hole, zero, extent(4, ExtentKind::Data)];
    assert_eq!(disk.extents(0, 8 * PAGE, 9).unwrap(), all);
    assert_eq!(disk.extents(0, 8 * PAGE, 2).unwrap(), all[..2]);
    let middle = [Extent { len: 100, ..hole }, Extent { len: 50, ..zero }];
    assert_eq!(disk.extents(2 * PAGE - 100, 150, 9).unwrap(), middle);
}

#[test]
fn a_device_has_whole_sectors_and_fits_its_store() {
    let disk = disk(2);
    assert_eq!(disk.write(2 * PAGE, &[1]).map_err(IoError::errno), Err(22));
    let of = |size| Disk::new(Arc::clone(disk.store()), &options(size)).err();
    assert_eq!(of(100), Some(OpenError::Size { size: 100, sector: 512 }));
    let (size, max) = (5 * PAGE, 4 * PAGE);
    assert_eq!(of(size), Some(OpenError::TooLarge { size, max }));
}

#[test]
fn a_closed_device_refuses_changes_and_is_read() {
    let disk = disk(2);
    disk.write(0, &[5; 100]).unwrap();
    disk.close();
    assert_eq!(disk.write(0, &[1]), Err(IoError::Closed));
    assert_eq!(disk.discard(0, 4096), Err(IoError::Closed));
    assert_eq!(disk.write_zeroes(0, 4096, Holes::Forbid), Err(IoError::Closed));
    assert_eq!(read(&disk, 0, 100), [5; 100]);
    assert_eq!(disk.stats().failed_writes_total, 3);
}

/// Threads write until the device closes under them; what was acknowledged is in a snapshot
/// that begins then.
#[test]
fn what_was_acknowledged_is_in_a_snapshot_after_the_end() {
    for _ in 0..50 {
        let disk = disk(64);
        let (acknowledged, saved) = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4u64)
                .map(|thread| {
                    let disk = &disk;
                    scope.spawn(move || {
                        let write = |n: &u64| {
                            let page = (thread * 16 + n % 16) * PAGE;
                            disk.write(page, &(n + 1).to_le_bytes()).is_ok()
                        };
                        (0u64..).take_while(write).count() as u64
                    })
                })
                .collect();
            std::thread::sleep(std::time::Duration::from_micros(300));
            disk.close();
            let mut saved = Vec::new();
            disk.store().save(b"", &mut saved).unwrap();
            (writers.into_iter().map(|w| w.join().unwrap()).collect::<Vec<_>>(), saved)
        });
        let after = self::disk(64);
        after.store().restore(&mut &saved[..]).unwrap();
        for (thread, count) in (0u64..).zip(acknowledged) {
            for n in count.saturating_sub(16)..count {
                let found = read(&after, (thread * 16 + n % 16) * PAGE, 8);
                let found = u64::from_le_bytes(found.try_into().unwrap());
                // The one that was refused may be there as well.
                let refused = n + 16 == count;
                assert!(found == n + 1 || refused && found == n + 17, "{n} of {count}: {found}");
            }
        }
    }
}
