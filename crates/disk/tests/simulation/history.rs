//! The device under threads: each notes what it wrote and read and when, and afterwards the
//! history is held against what a device may do.
//!
//! A write puts one stamp, which no other write has, into every sector of a range within a page.
//! Times are taken from one counter, before and after each call. Of every sector read, the rules
//! are:
//!
//! - H1: the stamp is that of a write that began before the read ended.
//! - H2: no other write began after that one had taken effect and took effect before the read
//!   began. A write has taken effect when it ends, or when a read that saw it has ended.
//! - H3: of a read within one page: where a write covers two of its sectors and one shows it, the
//!   other does not show a write that had taken effect before it began.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use zfold_disk::{Disk, DiskOptions, SectorSize};
use zfold_pool::PoolOptions;
use zfold_store::backing::MemoryBacking;
use zfold_store::{BackingOptions, CodecKind, CodecSpec, Recompress, Selection};
use zfold_store::{Store, StoreOptions};

use zfold_testing::Random;
use zfold_testing::wait::{at_once, beside};

const SECTOR: usize = 512;
const SECTORS_PER_PAGE: u64 = 8;
const PAGES: u64 = 6;

#[derive(Clone, Debug)]
struct Written {
    stamp: u64,
    sectors: Range<u64>,
    begun: u64,
    /// When it had taken effect for sure.
    done: u64,
}

#[derive(Clone, Debug)]
struct Read {
    first: u64,
    /// One a sector; 0 is what was there at first.
    stamps: Vec<u64>,
    begun: u64,
    ended: u64,
}

#[derive(Debug, Default)]
struct History {
    writes: Vec<Written>,
    reads: Vec<Read>,
}

impl History {
    /// Checks the rules; the error says which one is broken, and where.
    fn check(mut self) -> Result<(), String> {
        let by_stamp: HashMap<u64, usize> =
            self.writes.iter().enumerate().map(|(at, write)| (write.stamp, at)).collect();
        for read in &self.reads {
            for (sector, stamp) in read.sectors().filter(|&(_, stamp)| stamp != 0) {
                let Some(&at) = by_stamp.get(&stamp) else {
                    return Err(format!("sector {sector} has {stamp:#x}, which nobody wrote"));
                };
                let write = &mut self.writes[at];
                if write.begun > read.ended || !write.sectors.contains(&sector) {
                    return Err(format!("H1: {read:?} of {sector} sees {write:?}"));
                }
                write.done = write.done.min(read.ended);
            }
        }
        // What was there before all writes.
        let first = Written { stamp: 0, sectors: 0..u64::MAX, begun: 0, done: 0 };
        let write_of = |stamp: u64| by_stamp.get(&stamp).map_or(&first, |&at| &self.writes[at]);
        for read in &self.reads {
            for (sector, stamp) in read.sectors() {
                let seen = write_of(stamp);
                let between = self.writes.iter().find(|write| {
                    write.sectors.contains(&sector)
                        && write.begun > seen.done
                        && write.done < read.begun
                });
                if let Some(between) = between {
                    return Err(format!("H2: {read:?} of {sector} misses {between:?}"));
                }
                let torn = read.sectors().find(|&(other, stamp)| {
                    other / SECTORS_PER_PAGE == sector / SECTORS_PER_PAGE
                        && seen.stamp != 0
                        && seen.sectors.contains(&other)
                        && write_of(stamp).done < seen.begun
                });
                if let Some((other, _)) = torn {
                    return Err(format!("H3: {read:?} is torn between {sector} and {other}"));
                }
            }
        }
        Ok(())
    }
}

impl Read {
    fn sectors(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        (self.first..).zip(self.stamps.iter().copied())
    }
}

fn device() -> Disk {
    let pool = zfold_pool::create("threads", &PoolOptions::default()).unwrap();
    let mut options = StoreOptions::new(PAGES, CodecKind::Lz4.into());
    let backing = Arc::new(MemoryBacking::new(64 << 10));
    options.backing = Some(BackingOptions::new(backing));
    options.deduplicate = true;
    let strong: CodecSpec = "zstd:3".parse().unwrap();
    options.recompression = vec![strong.into()];
    let store = Store::new(pool, &options).unwrap();
    let size = PAGES * SECTORS_PER_PAGE * SECTOR as u64;
    let options = DiskOptions::new(size).with_sector(SectorSize::B512);
    Disk::new(Arc::new(store), &options).unwrap()
}

/// Writes and reads at random; `thread` counts from 1.
fn client(disk: &Disk, clock: &AtomicU64, thread: u64, seed: u64, calls: u64) -> History {
    let mut rng = Random::new(seed);
    let mut history = History::default();
    let now = || clock.fetch_add(1, Ordering::SeqCst);
    for call in 1..=calls {
        let first = rng.below(PAGES * SECTORS_PER_PAGE);
        let in_page = first % SECTORS_PER_PAGE;
        if rng.once_in(2) {
            // Whole pages now and then, which are written another way.
            let (first, count) = match rng.once_in(4) {
                true => (first - in_page, SECTORS_PER_PAGE),
                false => (first, 1 + rng.below(SECTORS_PER_PAGE - in_page)),
            };
            let stamp = thread << 32 | call;
            let data = stamp.to_le_bytes().repeat(count as usize * SECTOR / 8);
            let begun = now();
            disk.write(first * SECTOR as u64, &data).unwrap();
            let sectors = first..first + count;
            history.writes.push(Written { stamp, sectors, begun, done: now() });
        } else {
            let most = PAGES * SECTORS_PER_PAGE - first;
            let mut data = vec![0; (1 + rng.below(most.min(16)) as usize) * SECTOR];
            let begun = now();
            disk.read(first * SECTOR as u64, &mut data).unwrap();
            let ended = now();
            let stamps = data.chunks(SECTOR).map(stamp_of).collect();
            history.reads.push(Read { first, stamps, begun, ended });
        }
    }
    history
}

/// Returns the stamp of a sector, which is the same all over it.
fn stamp_of(sector: &[u8]) -> u64 {
    let (words, _) = sector.as_chunks::<8>();
    assert!(words.iter().all(|word| *word == words[0]), "a sector is of two writes");
    u64::from_le_bytes(words[0])
}

/// Sends pages to the backing file and gives them other forms.
fn meddle(disk: &Disk) {
    let store = disk.store();
    store.writeback(&Selection::from(0..PAGES / 2), None).unwrap();
    store.recompress(&Recompress::new(Selection::All, 1)).unwrap();
    store.save(b"", &mut std::io::sink()).unwrap();
    store.compact();
}

#[test]
fn threads_see_one_order_of_the_writes_to_each_page() {
    let seed = 20;
    println!("seed {seed}");
    let (disk, clock) = (device(), AtomicU64::new(1));
    let mut history = History::default();
    let each = |thread| client(&disk, &clock, thread, seed + thread, 1500);
    for of_client in beside(|| meddle(&disk), || at_once(1..5, each)) {
        history.writes.extend(of_client.writes);
        history.reads.extend(of_client.reads);
    }
    disk.store().check();
    history.check().unwrap();
}

/// Returns what the checker says of writes (stamp, sectors, begun, done) and reads (first,
/// stamps, begun, ended).
fn check(
    writes: &[(u64, Range<u64>, u64, u64)],
    reads: &[(u64, &[u64], u64, u64)],
) -> Result<(), String> {
    let write = |(stamp, sectors, begun, done)| Written { stamp, sectors, begun, done };
    let read = |(first, stamps, begun, ended): (_, &[u64], _, _)| Read {
        first,
        stamps: stamps.to_vec(),
        begun,
        ended,
    };
    History {
        writes: writes.iter().cloned().map(write).collect(),
        reads: reads.iter().copied().map(read).collect(),
    }
    .check()
}

fn assert_broken(rule: &str, checked: Result<(), String>) {
    let error = checked.expect_err("a wrong history");
    assert!(error.starts_with(rule), "{rule} is broken, not: {error}");
}

#[test]
fn histories_that_some_order_allows_pass() {
    // A read beside two writes sees either, or what was there before.
    for stamp in [0, 7, 8] {
        let two = [(7, 0..1, 1, 10), (8, 0..1, 2, 9)];
        check(&two, &[(0, &[stamp], 3, 4)]).unwrap();
    }
    // Pages of one request may be of different moments.
    check(&[(7, 0..16, 1, 2)], &[(7, &[7, 7], 3, 4)]).unwrap();
    check(&[(7, 0..8, 1, 9), (8, 8..16, 1, 9)], &[(7, &[0, 8], 2, 3)]).unwrap();
}

#[test]
fn a_stamp_that_nobody_wrote_is_noticed() {
    assert_broken("sector 0", check(&[], &[(0, &[3], 1, 2)]));
    assert_broken("H1", check(&[(3, 0..1, 5, 6)], &[(0, &[3], 1, 2)]));
    assert_broken("H1", check(&[(3, 0..1, 1, 2)], &[(1, &[3], 3, 4)]));
}

#[test]
fn a_read_of_what_was_overwritten_is_noticed() {
    let writes = [(7, 0..1, 1, 2), (8, 0..1, 3, 4)];
    check(&writes, &[(0, &[8], 5, 6)]).unwrap();
    assert_broken("H2", check(&writes, &[(0, &[7], 5, 6)]));
    assert_broken("H2", check(&writes, &[(0, &[0], 5, 6)]));
    // One read saw the new bytes, so a later one cannot see the old ones, though the write that
    // put them there has not ended.
    let slow = [(7, 0..1, 1, 2), (8, 0..1, 3, 99)];
    assert_broken("H2", check(&slow, &[(0, &[8], 4, 5), (0, &[7], 6, 7)]));
}

#[test]
fn a_torn_page_is_noticed() {
    let writes = [(7, 0..8, 1, 2), (8, 0..8, 3, 99)];
    check(&writes, &[(0, &[8, 8], 4, 5)]).unwrap();
    assert_broken("H3", check(&writes, &[(0, &[8, 7], 4, 5)]));
}
