//! A recorded zswap run, replayed in an allocator by sizes and order.
//!
//! Contents are made up: each object is filled with numbers drawn from its slot and the position
//! of its store, so that an object in the wrong place or of the wrong time is noticed. A store that
//! brings the pool above the limit is taken back and counts as rejected, as a page that zswap may
//! not write out.

use std::collections::HashMap;
use std::time::Instant;

use zfold_pool::{AllocError, Allocator, Handle, Pool};

use super::error::Fault;
use super::meter::Lap;
use super::plan::Plan;
use super::record::{Measured, Sizes};
use crate::latency::Latency;
use crate::proc::resident_bytes;
use crate::rng::SplitMix64;
use crate::trace::{Event, Trace};

/// zswap's header of an object: the swap slot it belongs to.
const KEY_HEADER_BYTES: usize = 8;

/// An object in the pool.
struct Object {
    handle: Handle,
    len: usize,
    /// Names the contents.
    store: u64,
}

/// A replay under way.
struct Replay {
    pool: Box<dyn Pool>,
    /// Every slot that is ever stored to, with its object if it has one now.
    slots: HashMap<u32, Option<Object>>,
    /// Bytes that the owner puts before each object.
    header_len: usize,
    page_len: usize,
    limit_bytes: u64,
    sizes: Sizes,
    stores: Latency,
    loads: Latency,
    /// The expected contents of an object, and its actual contents.
    expected: Vec<u8>,
    found: Vec<u8>,
}

/// Replays `trace` in a pool of this allocator.
pub(super) fn replay(
    plan: &Plan,
    trace: &Trace,
    allocator: Allocator,
    lap: &Lap<'_>,
) -> Result<Measured, Fault> {
    let mut replay = Replay::new(plan, allocator, trace.slots())?;
    let filled = filled_point(trace);
    let base = resident_bytes().map_err(Fault::Resident)?;
    for (position, event) in trace.events().iter().enumerate() {
        replay.apply(event, position as u64)?;
        if position == filled {
            replay.note_filled(base)?;
        }
        lap.tick(position);
    }
    replay.finish(base)
}

/// Returns the event after which the live payload of the trace is largest.
fn filled_point(trace: &Trace) -> usize {
    let mut sizes: HashMap<u32, u64> = HashMap::new();
    let (mut payload, mut most, mut filled) = (0, 0, 0);
    for (position, event) in trace.events().iter().enumerate() {
        let gone = match event {
            Event::Store { slot, size } => {
                payload += u64::from(*size);
                sizes.insert(*slot, u64::from(*size))
            }
            Event::Invalidate { slot } | Event::Rejected { slot } => sizes.remove(slot),
            Event::Load { .. } => None,
        };
        payload -= gone.unwrap_or(0);
        if payload > most {
            (most, filled) = (payload, position);
        }
    }
    filled
}

impl Replay {
    fn new(
        plan: &Plan,
        allocator: Allocator,
        slots: impl Iterator<Item = u32>,
    ) -> Result<Self, Fault> {
        let header_len = if plan.has_key_header(allocator) { KEY_HEADER_BYTES } else { 0 };
        let longest = usize::from(u16::MAX) + header_len;
        Ok(Self {
            pool: plan.pool(allocator)?,
            slots: slots.map(|slot| (slot, None)).collect(),
            header_len,
            page_len: plan.page_size.bytes(),
            limit_bytes: plan.limit_bytes.unwrap_or(u64::MAX),
            sizes: Sizes::default(),
            stores: Latency::new(),
            loads: Latency::new(),
            // Ones, so that the memory is touched now.
            expected: vec![1; longest],
            found: vec![1; longest],
        })
    }

    fn apply(&mut self, event: &Event, position: u64) -> Result<(), Fault> {
        match *event {
            Event::Store { slot, size } => {
                self.drop_object(slot)?;
                self.store(slot, usize::from(size), position)
            }
            Event::Load { slot } => self.load(slot),
            Event::Invalidate { slot } => self.drop_object(slot),
            Event::Rejected { slot } => {
                self.sizes.rejected += 1;
                self.drop_object(slot)
            }
        }
    }

    /// Stores `size` bytes, unless there are none or the pool takes no object that long.
    fn store(&mut self, slot: u32, size: usize, store: u64) -> Result<(), Fault> {
        if size == 0 {
            self.sizes.same_filled += 1;
            return Ok(());
        }
        let len = size + self.header_len;
        draw_contents(slot, store, &mut self.expected[..len]);
        let start = Instant::now();
        match self.pool.insert(&self.expected[..len]) {
            Ok(handle) => {
                self.stores.record(start.elapsed());
                if self.pool.held_bytes() > self.limit_bytes {
                    self.sizes.rejected += 1;
                    let freed = self.pool.free(handle);
                    // The object's memory must not stay idle above the limit.
                    self.pool.compact(0);
                    return freed.map_err(|source| Fault::Access { slot, source });
                }
                self.slots.insert(slot, Some(Object { handle, len, store }));
                self.sizes.raw += u64::from(size >= self.page_len);
                Ok(())
            }
            Err(AllocError::TooLong { .. }) => {
                self.sizes.rejected += 1;
                Ok(())
            }
            Err(source) => Err(Fault::Alloc { slot, source }),
        }
    }

    /// Loads the object of `slot`, if it has one, and compares its bytes.
    fn load(&mut self, slot: u32) -> Result<(), Fault> {
        let Some(&Some(Object { handle, len, store })) = self.slots.get(&slot) else {
            return Ok(());
        };
        draw_contents(slot, store, &mut self.expected[..len]);
        let start = Instant::now();
        let guard = self.pool.read(handle).map_err(|source| Fault::Access { slot, source })?;
        let same_len = guard.len() == len;
        if same_len {
            self.found[..len].copy_from_slice(&guard);
        }
        drop(guard);
        self.loads.record(start.elapsed());
        if !same_len || self.found[..len] != self.expected[..len] {
            return Err(Fault::WrongBytes { page: u64::from(slot) });
        }
        Ok(())
    }

    /// Frees the object of `slot`, if it has one.
    fn drop_object(&mut self, slot: u32) -> Result<(), Fault> {
        let Some(object) = self.slots.get_mut(&slot).and_then(Option::take) else {
            return Ok(());
        };
        self.pool.free(object.handle).map_err(|source| Fault::Access { slot, source })
    }

    /// Notes the figures of the filled point.
    fn note_filled(&mut self, base: u64) -> Result<(), Fault> {
        let resident = resident_bytes().map_err(Fault::Resident)?;
        let stats = self.pool.stats();
        self.sizes.objects = stats.objects;
        self.sizes.payload_bytes = stats.payload_bytes;
        self.sizes.pool_bytes = stats.pool_bytes();
        self.sizes.metadata_bytes = stats.metadata_bytes;
        self.sizes.rss_bytes = resident.saturating_sub(base);
        Ok(())
    }

    /// Frees what is left and returns all figures.
    fn finish(mut self, base: u64) -> Result<Measured, Fault> {
        for (&slot, object) in &mut self.slots {
            let Some(Object { handle, .. }) = object.take() else { continue };
            self.pool.free(handle).map_err(|source| Fault::Access { slot, source })?;
        }
        let resident = resident_bytes().map_err(Fault::Resident)?;
        self.sizes.rss_bytes_emptied = resident.saturating_sub(base);
        let stats = self.pool.stats();
        self.sizes.pool_bytes_peak = stats.pages_peak.bytes(stats.page_size);
        self.sizes.pool_bytes_emptied = stats.pool_bytes();
        if stats.pool_bytes() > 0 {
            return Err(Fault::NotReturned { bytes: stats.pool_bytes() });
        }
        Ok(Measured { sizes: self.sizes, stores: self.stores, loads: self.loads })
    }
}

/// Fills `bytes` with numbers that only this slot and store have.
fn draw_contents(slot: u32, store: u64, bytes: &mut [u8]) {
    let mut rng = SplitMix64::new(u64::from(slot) << 32 ^ store);
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&rng.next_u64().to_le_bytes()[..chunk.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_replay() -> Replay {
        Replay::new(&Plan::default(), Allocator::Zsmalloc, 0..10).expect("a pool")
    }

    #[test]
    fn wrong_bytes_are_noticed() {
        let mut replay = new_replay();
        replay.store(3, 500, 0).expect("room");
        replay.load(3).expect("the object that was stored");
        let Some(Some(object)) = replay.slots.get(&3) else { panic!("no object") };
        replay.pool.write(object.handle, b"wrong").expect("a live object");
        let fault = replay.load(3).expect_err("other bytes");
        assert!(matches!(fault, Fault::WrongBytes { page: 3 }), "{fault}");
    }

    #[test]
    fn contents_differ_by_slot_and_store() {
        let contents = |slot, store| {
            let mut bytes = [0; 13];
            draw_contents(slot, store, &mut bytes);
            bytes
        };
        assert_eq!(contents(1, 2), contents(1, 2));
        assert_ne!(contents(1, 2), contents(1, 3));
        assert_ne!(contents(1, 2), contents(2, 2));
    }

    #[test]
    fn object_is_replaced_and_what_is_missing_is_skipped() {
        let mut replay = new_replay();
        for event in [
            Event::Store { slot: 1, size: 300 },
            Event::Store { slot: 1, size: 200 },
            Event::Load { slot: 2 },
            Event::Invalidate { slot: 77 },
            Event::Store { slot: 2, size: 0 },
            Event::Store { slot: 3, size: 5000 },
            Event::Rejected { slot: 4 },
        ] {
            replay.apply(&event, 0).expect("no fault");
        }
        let stats = replay.pool.stats();
        assert_eq!((stats.objects, stats.payload_bytes), (1, 200));
        assert_eq!((replay.sizes.same_filled, replay.sizes.rejected), (1, 2));
        let outcome = replay.finish(0).expect("all memory back");
        assert_eq!((outcome.stores.count(), outcome.loads.count()), (2, 0));
    }
}
