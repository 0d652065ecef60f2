//! Blocks out of a heap: their contents, their ends, pins, and a file behind them.

use std::collections::BTreeMap;
use std::sync::Arc;

use zfold_region::{Block, FaultMode, Heap, Memory, RegionError};
use zfold_store::BackingOptions;
use zfold_store::backing::{FileBacking, FileOptions};

use super::{MIB, PAGE, Random, at_once, holds, once, skip, small};

/// Asserts that a heap of one region holds nothing. Pages may have been brought ahead of touches in
/// sequence; they are zeros, which paging out drops.
fn expect_empty(heap: &Heap) {
    assert_eq!((heap.stats().blocks, heap.stats().block_bytes, heap.stats().regions), (0, 0, 1));
    let all = heap.alloc(heap.stats().region_bytes as usize).unwrap();
    assert_eq!(heap.stats().regions, 1, "the holes have joined");
    heap.pageout(all.as_ptr().addr(), all.len()).unwrap();
    holds(heap.memory(), 0, 0);
}

fn bytes(block: &mut Block) -> &mut [u8] {
    // SAFETY: the block's own memory, borrowed uniquely.
    unsafe { std::slice::from_raw_parts_mut(block.as_ptr(), block.len()) }
}

/// Fills a block with bytes of which half compress.
fn fill(block: &mut Block, seed: u64) {
    let mut random = Random::new(seed);
    bytes(block).chunks_mut(16).for_each(|chunk| {
        let word = random.word().to_ne_bytes();
        chunk.iter_mut().zip(word).for_each(|(byte, random)| *byte = random);
    });
}

fn expect(block: &mut Block, seed: u64) {
    let mut random = Random::new(seed);
    for chunk in bytes(block).chunks(16) {
        let word = random.word().to_ne_bytes();
        assert_eq!(chunk[..8], word);
        assert!(chunk[8..].iter().all(|&byte| byte == 0));
    }
}

#[test]
fn blocks_begin_as_zeros_keep_their_bytes_and_do_not_overlap() {
    let heap = Heap::new(&Memory::new(&small(MIB)).unwrap());
    let (mut random, mut live) = (Random::new(42), BTreeMap::new());
    for turn in 0..6000_u64 {
        let number = random.word();
        if number % 5 < 3 {
            // Mostly small ones, up to 200 KiB.
            let len = 1 + (number >> 8) as usize % [100, 3000, 20_000, 200_000][turn as usize % 4];
            let mut block = heap.alloc(len).unwrap();
            assert!(block.len() >= len && block.as_ptr().addr().is_multiple_of(64));
            assert!(bytes(&mut block).iter().all(|&byte| byte == 0), "turn {turn}");
            fill(&mut block, turn);
            live.insert(block.as_ptr().addr(), (block, turn));
        } else {
            let near = live.range(number as usize % (1 << 47)..).chain(&live).next();
            let at = near.map(|(&at, _)| at);
            if let Some((mut block, seed)) = at.and_then(|at| live.remove(&at)) {
                expect(&mut block, seed);
            }
        }
        if live.len() > 300 {
            live.pop_first();
        }
    }
    let ends = live.values().map(|(block, _)| block.as_ptr().addr() + block.len());
    assert!(live.keys().skip(1).zip(ends).all(|(&start, end)| end <= start));
    live.values_mut().for_each(|(block, seed)| expect(block, *seed));
    live.clear();
    expect_empty(&heap);
}

#[test]
fn thousands_of_blocks_share_a_region_and_large_ones_go_with_theirs() {
    let heap = Heap::new(&Memory::new(&small(MIB)).unwrap());
    let blocks: Vec<_> = (0..20_000).map(|_| heap.alloc(900).unwrap()).collect();
    assert_eq!(heap.stats().regions, 1);
    let large = heap.alloc(100 * MIB).unwrap();
    assert_eq!(heap.stats().regions, 2);
    drop(large);
    assert_eq!(heap.stats().regions, 1);
    assert!(matches!(heap.alloc(500 * MIB), Err(RegionError::NoCapacity { .. })));
    assert!(matches!(heap.alloc(usize::MAX), Err(RegionError::NoCapacity { .. })));
    drop(blocks);
    assert_eq!(heap.stats().blocks, 0);
}

#[test]
fn a_block_that_has_pages_of_its_own_begins_with_one() {
    let heap = Heap::new(&Memory::new(&small(MIB)).unwrap());
    let mut first = heap.alloc(64).unwrap();
    fill(&mut first, 5);
    for len in [4 * PAGE - 64, 4 * PAGE - 63, 4 * PAGE - 1, 4 * PAGE, 4 * PAGE + 1] {
        let block = heap.alloc(len).unwrap();
        let own = block.as_ptr().addr().is_multiple_of(PAGE) && block.len().is_multiple_of(PAGE);
        assert_eq!(own, len > 4 * PAGE - 64, "{len}");
        drop(block);
        expect(&mut first, 5);
    }
}

#[test]
fn threads_allocate_and_free_at_once() {
    let heap = Heap::new(&Memory::new(&small(MIB)).unwrap());
    at_once(1..5_u64, |thread| {
        let mut random = Random::new(thread);
        for turn in 0..200 {
            let mut blocks =
                (0..10).map(|_| heap.alloc(1 + random.index(40_000)).unwrap()).collect::<Vec<_>>();
            blocks.iter_mut().for_each(|block| fill(block, thread << 32 | turn));
            blocks.iter_mut().for_each(|block| expect(block, thread << 32 | turn));
        }
    });
    expect_empty(&heap);
}

#[test]
fn a_block_becomes_an_address_and_a_block_again() {
    let heap = Heap::new(&Memory::new(&small(MIB)).unwrap());
    let mut block = heap.alloc(50_000).unwrap();
    fill(&mut block, 7);
    let start = block.into_raw();
    assert!(heap.contains(start.addr().get()) && heap.stats().blocks == 1);
    let inside = start.map_addr(|address| address.checked_add(64).unwrap());
    // SAFETY: nothing begins there.
    assert!(unsafe { heap.from_raw(inside) }.is_none());
    // SAFETY: the address came from `into_raw` just now.
    let mut block = unsafe { heap.from_raw(start) }.unwrap();
    expect(&mut block, 7);
    drop(block);
    assert_eq!(heap.stats().blocks, 0);
}

#[test]
fn a_pin_keeps_pages_and_may_outlive_its_block() {
    let heap = Heap::new(&Memory::new(&small(MIB)).unwrap());
    let mut block = heap.alloc(4 * PAGE).unwrap();
    fill(&mut block, 3);
    let address = block.as_ptr().addr();
    let pin = heap.pin(address, 4 * PAGE).unwrap();
    heap.pageout(address, 4 * PAGE).unwrap();
    let stats = heap.memory().stats();
    assert_eq!((stats.pinned_pages, stats.stored_pages), (4, 0));
    drop(block);
    // The same place, whose pages stayed: they are zeros all the same.
    let mut block = heap.alloc(4 * PAGE).unwrap();
    assert_eq!(block.as_ptr().addr(), address);
    assert!(bytes(&mut block).iter().all(|&byte| byte == 0));
    drop(pin);
    fill(&mut block, 4);
    heap.pageout(address, 4 * PAGE).unwrap();
    // Pages behind the block may have been brought ahead.
    assert_eq!(once(heap.memory(), |stats| stats.stored_pages == 4).pinned_pages, 0);
    expect(&mut block, 4);
    assert!(matches!(heap.pin(4096, 1), Err(RegionError::NotOurs)));
    assert!(matches!(heap.pin(address, usize::MAX), Err(RegionError::NotOurs)));
    assert!(matches!(heap.pin(address, 2 * MIB), Err(RegionError::PinLimit { .. })));
}

#[test]
fn what_the_store_has_no_room_for_goes_to_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cold");
    let backing =
        FileBacking::open(&path, &FileOptions::new().with_len(Some(128 * MIB as u64))).unwrap();
    let options = small(2 * MIB).with_store_limit(4 * MIB as u64);
    let options = options.with_backing(BackingOptions::new(Arc::new(backing)));
    let refused = Memory::new(&options).unwrap_err();
    assert!(matches!(refused, RegionError::BackingNeedsThreads), "{refused}");
    let memory = match Memory::new(&options.with_faults(FaultMode::Thread)) {
        Err(RegionError::NotPermitted(error)) => return skip(error),
        memory => memory.unwrap(),
    };
    let heap = Heap::new(&memory);
    let mut blocks: Vec<_> = (0..32).map(|_| heap.alloc(MIB).unwrap()).collect();
    (1..).zip(&mut blocks).for_each(|(seed, block)| fill(block, seed));
    (1..).zip(&mut blocks).for_each(|(seed, block)| expect(block, seed));
    let stats = memory.stats();
    assert!(stats.store_bytes <= 5 * MIB as u64, "{stats:?}");
    assert!(stats.stored_pages > 7000, "{stats:?}");
}
