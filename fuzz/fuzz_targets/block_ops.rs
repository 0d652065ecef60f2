//! Any sequence of requests to a device: what it holds is what an array of bytes holds that was
//! changed likewise. The store under it sends pages to a backing file and gives them other forms
//! in between.

#![no_main]

use std::ops::Range;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use zfold_disk::{Disk, DiskOptions, ExtentKind, Holes, SectorSize};
use zfold_fuzz::{OPS_PER_CHECK, words};
use zfold_pool::{Allocator, PoolOptions, create};
use zfold_store::backing::MemoryBacking;
use zfold_store::{
    BackingOptions, CodecKind, CodecSpec, Recompress, Selection, Store, StoreOptions,
};

const PAGE: u64 = 4096;
const PAGES: u64 = 24;
const SIZE: u64 = PAGE * PAGES;

/// Longest request, in bytes.
const LEN_MAX: u64 = 3 * PAGE;

fn device(variant: u8) -> Disk {
    let codecs = [CodecKind::Lz4, CodecKind::Zstd, CodecKind::Page, CodecKind::Lz4Hc];
    let mut options = StoreOptions::new(PAGES, codecs[variant as usize & 3].into());
    options.deduplicate = variant & 4 != 0;
    options.same_filled = variant & 8 != 0;
    if variant & 16 != 0 {
        let strong: CodecSpec = "zstd:3".parse().expect("a codec");
        options.recompression = vec![strong.into()];
    }
    if variant & 32 != 0 {
        let backing = Arc::new(MemoryBacking::new(64 << 10));
        options.backing = Some(BackingOptions::new(backing));
    }
    let pool = create("fuzz", &PoolOptions::new(Allocator::Zsmalloc)).expect("a pool");
    let store = Store::new(pool, &options).expect("the options are in range");
    let options = DiskOptions::new(SIZE).with_sector(SectorSize::B512);
    Disk::new(Arc::new(store), &options).expect("the size is in range")
}

/// Returns the request's range that a word stands for; it may reach beyond the end.
fn range(word: u64) -> (u64, u64) {
    let (offset, len) = ((word >> 8) % (SIZE + 8), (word >> 32) % (LEN_MAX + 1));
    match word >> 6 & 3 {
        0 => (offset / PAGE * PAGE, len / PAGE * PAGE),
        1 => (offset / 512 * 512, len / 512 * 512),
        _ => (offset, len),
    }
}

/// Returns bytes that compress or not, as `word` says.
fn data(word: u64, len: u64) -> Vec<u8> {
    let noise = |at: u64| (at ^ word).wrapping_mul(0x5851_F42D_4C95_7F2D).rotate_left(23) as u8;
    let byte = |at: u64| match word >> 56 & 3 {
        0 => (word >> 48) as u8,
        1 => (at / 9) as u8 ^ (word >> 40) as u8,
        _ => noise(at),
    };
    (0..len).map(byte).collect()
}

/// Gives pages other forms, if the store has any.
fn process(disk: &Disk, word: u64) {
    let store = disk.store();
    let selection = [Selection::All, Selection::Idle, Selection::Huge, Selection::Lru]
        [(word >> 8) as usize & 3]
        .clone();
    let most = Some(word >> 16 & 31);
    match word >> 24 & 3 {
        0 => _ = store.mark_idle(None),
        1 => _ = store.compact(),
        2 => _ = store.writeback(&selection, most),
        _ => {
            let recompress = Recompress::new(selection, 1).with_max_pages(most);
            let _ = store.recompress(&recompress);
        }
    }
}

fn check_extents(disk: &Disk, model: &[u8], word: u64, range: &Range<usize>) {
    let limit = 1 + (word >> 58) as usize;
    let extents = disk.extents(range.start as u64, range.len() as u64, limit).expect("in range");
    let mut at = range.start;
    for extent in &extents {
        let end = at + extent.len as usize;
        let zeros = model[at..end].iter().all(|&byte| byte == 0);
        assert!(zeros || extent.kind == ExtentKind::Data, "{at}..{end} is {:?}", extent.kind);
        at = end;
    }
    assert!(at == range.end || extents.len() == limit, "extents end at {at} of {range:?}");
}

fuzz_target!(|data_in: &[u8]| {
    let Some((&variant, bytes)) = data_in.split_first() else { return };
    let disk = device(variant);
    let mut model = vec![0_u8; SIZE as usize];
    for (n, word) in words(bytes).enumerate() {
        let (offset, len) = range(word);
        let inside = offset + len <= SIZE;
        let range = offset as usize..(offset + len) as usize;
        match word & 15 {
            0..=4 => {
                let data = data(word, len);
                assert_eq!(disk.write(offset, &data).is_ok(), inside);
                if inside {
                    model[range].copy_from_slice(&data);
                }
            }
            5..=8 => {
                let mut found = vec![0xEE; len as usize];
                assert_eq!(disk.read(offset, &mut found).is_ok(), inside);
                assert!(!inside || found == model[range.clone()], "bytes {range:?} differ");
            }
            kind @ 9..=11 => {
                let zeroed = match kind {
                    9 => disk.discard(offset, len),
                    10 => disk.write_zeroes(offset, len, Holes::Allow),
                    _ => disk.write_zeroes(offset, len, Holes::Forbid),
                };
                assert_eq!(zeroed.is_ok(), inside);
                if inside {
                    model[range].fill(0);
                }
            }
            12 if inside => check_extents(&disk, &model, word, &range),
            _ => process(&disk, word),
        }
        if n % OPS_PER_CHECK == OPS_PER_CHECK - 1 {
            disk.store().check();
        }
    }
    let mut found = vec![0xEE; SIZE as usize];
    disk.read(0, &mut found).expect("all of it");
    assert!(found == model, "the device differs from the model at the end");
    disk.discard(0, SIZE).expect("all of it");
    assert!(disk.store().is_empty());
    disk.store().check();
});
