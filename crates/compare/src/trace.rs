//! Recorded runs of zswap: every store, load and invalidate in order, with slot and size.
//!
//! ```text
//! "ZTRACE01"  u64 count  count x { u64 ns, u8 op, u8 cpu, u16 size, u32 slot }  little-endian
//! op: 1 store, 2 load, 3 invalidate, 4 rejected store
//! ```
//!
//! A store of size 0 is a page of one repeated word, which zswap keeps without an object. The
//! times are not used: only the order and the sizes are replayed.

/// The first half of a compiler's run, packed by zstd.
const BUILTIN: &[u8] = include_bytes!("../corpus/cc1.ztr.zst");

const MAGIC: &[u8; 8] = b"ZTRACE01";
const HEADER_BYTES: usize = 16;
const RECORD_BYTES: usize = 16;

/// An event of a slot of a swap device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A page was stored.
    Store {
        /// The slot, from 0.
        slot: u32,
        /// Compressed bytes; 0 for a page of one repeated word.
        size: u16,
    },
    /// The page was read back.
    Load {
        /// The slot, from 0.
        slot: u32,
    },
    /// The page was dropped.
    Invalidate {
        /// The slot, from 0.
        slot: u32,
    },
    /// A page was not taken by zswap.
    Rejected {
        /// The slot, from 0.
        slot: u32,
    },
}

impl Event {
    /// Returns the slot whose page it is about.
    pub fn slot(self) -> usize {
        let (Self::Store { slot, .. }
        | Self::Load { slot }
        | Self::Invalidate { slot }
        | Self::Rejected { slot }) = self;
        slot as usize
    }
}

/// A recorded run; never empty.
#[derive(Clone, Debug)]
pub struct Trace {
    events: Vec<Event>,
}

impl Trace {
    /// Returns the trace that is part of this crate: the first half of a compiler's run in too
    /// little memory, 175,000 events.
    pub fn builtin() -> Self {
        let bytes = zstd::decode_all(BUILTIN).expect("the trace was packed with this crate");
        Self { events: parse(&bytes) }
    }

    /// Returns what happened, in order.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Returns the number of slots: one more than the last that an event names.
    pub fn slots(&self) -> usize {
        self.events.iter().map(|event| event.slot() + 1).max().unwrap_or(0)
    }
}

/// Returns the events in the bytes of the trace.
///
/// # Panics
/// If they are not those of a whole trace.
fn parse(bytes: &[u8]) -> Vec<Event> {
    let (header, body) = bytes.split_at(HEADER_BYTES);
    let count = header.strip_prefix(MAGIC).expect("a trace begins with ZTRACE01");
    let (records, rest) = body.as_chunks::<RECORD_BYTES>();
    assert_eq!(count, (records.len() as u64).to_le_bytes(), "its header counts its records");
    assert!(rest.is_empty(), "they are whole");
    records.iter().map(parse_record).collect()
}

/// Returns the event in one record.
fn parse_record(record: &[u8; RECORD_BYTES]) -> Event {
    let [_, _, _, _, _, _, _, _, operation, _cpu, size @ .., s0, s1, s2, s3] = record;
    let slot = u32::from_le_bytes([*s0, *s1, *s2, *s3]);
    match operation {
        1 => Event::Store { slot, size: u16::from_le_bytes(*size) },
        2 => Event::Load { slot },
        3 => Event::Invalidate { slot },
        4 => Event::Rejected { slot },
        _ => panic!("operation {operation}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(operation: u8, size: u16, slot: u32) -> Vec<u8> {
        let mut bytes = 9u64.to_le_bytes().to_vec();
        bytes.extend([operation, 3]);
        bytes.extend(size.to_le_bytes());
        bytes.extend(slot.to_le_bytes());
        bytes
    }

    fn trace(records: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend((records.len() as u64).to_le_bytes());
        bytes.extend(records.concat());
        bytes
    }

    #[test]
    fn records_become_events() {
        let records = [record(1, 500, 7), record(2, 0, 7), record(3, 0, 7), record(4, 0, 70_000)];
        let events = parse(&trace(&records));
        let expected = [
            Event::Store { slot: 7, size: 500 },
            Event::Load { slot: 7 },
            Event::Invalidate { slot: 7 },
            Event::Rejected { slot: 70_000 },
        ];
        assert_eq!(events, expected);
    }

    #[test]
    fn builtin_trace_is_consistent() {
        let trace = Trace::builtin();
        assert_eq!(trace.events().len(), 175_000);
        let mut stores = 0;
        let mut held = std::collections::HashSet::new();
        for event in trace.events() {
            assert!(event.slot() < trace.slots());
            stores += u32::from(matches!(event, Event::Store { .. } | Event::Rejected { .. }));
            match *event {
                Event::Store { slot, .. } => assert!(held.insert(slot), "slot {slot} is held"),
                Event::Load { slot } => assert!(held.contains(&slot), "slot {slot} is empty"),
                Event::Invalidate { slot } => assert!(held.remove(&slot), "slot {slot} is empty"),
                Event::Rejected { slot } => _ = held.remove(&slot),
            }
        }
        assert_eq!((stores, held.len()), (80_377, 33_081));
    }
}
