//! Recorded runs of zswap: every store, load and invalidate in order, with slot and size.
//!
//! ```text
//! "ZTRACE01"  u64 count  count x { u64 ns, u8 op, u8 cpu, u16 size, u32 slot }  little-endian
//! op: 1 store, 2 load, 3 invalidate, 4 rejected store
//! ```
//!
//! A store of size 0 is a page of one repeated word, which zswap keeps without an object. The
//! times are not used: only the order and the sizes are replayed.

use std::path::Path;

use crate::input::{InputError, TraceFlaw, read_file, stem, unpack};

/// The first half of a compiler's run, packed by zstd.
const BUILTIN: (&str, &[u8]) = ("cc1", include_bytes!("../corpus/cc1.ztr.zst"));

const MAGIC: &[u8; 8] = b"ZTRACE01";
const HEADER_BYTES: usize = 16;
const RECORD_BYTES: usize = 16;
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

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

/// A recorded run; never empty.
#[derive(Clone, Debug)]
pub struct Trace {
    name: String,
    events: Vec<Event>,
}

impl Trace {
    /// Returns the trace in a file, raw or packed by zstd, named after the file without `.zst`
    /// and `.ztr`.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or unpacked, has more than 256 MiB unpacked, or is not a whole
    /// trace.
    pub fn from_file(path: &Path) -> Result<Self, InputError> {
        let mut bytes = read_file(path)?;
        if bytes.starts_with(&ZSTD_MAGIC) {
            bytes = unpack(path, &bytes)?;
        }
        if bytes.is_empty() {
            return Err(InputError::Empty { name: path.display().to_string() });
        }
        let events =
            parse(&bytes).map_err(|flaw| InputError::BadTrace { path: path.to_owned(), flaw })?;
        Ok(Self { name: stem(path, &[".zst", ".ztr"]), events })
    }

    /// Returns the trace that is part of this crate: the first half of a compiler's run in too
    /// little memory, 175,000 events.
    pub fn builtin() -> Self {
        let (name, packed) = BUILTIN;
        let bytes = zstd::decode_all(packed).expect("the trace was packed with this crate");
        let events = parse(&bytes).expect("the trace is whole");
        Self { name: name.to_owned(), events }
    }

    /// Returns the name under which results are reported.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns what happened, in order.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Returns how many stores there are, rejected ones included.
    pub fn stores(&self) -> u64 {
        let is_store =
            |event: &&Event| matches!(event, Event::Store { .. } | Event::Rejected { .. });
        self.events.iter().filter(is_store).count() as u64
    }

    /// Returns the slot of each store, repeated if it is stored to several times.
    pub fn slots(&self) -> impl Iterator<Item = u32> {
        self.events.iter().filter_map(|event| match event {
            Event::Store { slot, .. } => Some(*slot),
            _ => None,
        })
    }
}

/// Returns the events in the bytes of a trace.
fn parse(bytes: &[u8]) -> Result<Vec<Event>, TraceFlaw> {
    let Some((header, body)) = bytes.split_at_checked(HEADER_BYTES) else {
        return Err(TraceFlaw::NoHeader);
    };
    let Some(count) = header.strip_prefix(MAGIC) else {
        return Err(TraceFlaw::NoHeader);
    };
    let promised = u64::from_le_bytes(count.try_into().expect("the header ends in 8 bytes"));
    let (records, rest) = body.as_chunks::<RECORD_BYTES>();
    if !rest.is_empty() || records.len() as u64 != promised {
        return Err(TraceFlaw::Length { promised, bytes: body.len() as u64 });
    }
    if records.is_empty() {
        return Err(TraceFlaw::NoRecords);
    }
    records.iter().zip(0..).map(|(record, index)| parse_record(record, index)).collect()
}

/// Returns the event in one record.
fn parse_record(record: &[u8; RECORD_BYTES], index: u64) -> Result<Event, TraceFlaw> {
    let [_, _, _, _, _, _, _, _, operation, _cpu, size @ .., s0, s1, s2, s3] = record;
    let slot = u32::from_le_bytes([*s0, *s1, *s2, *s3]);
    match operation {
        1 => Ok(Event::Store { slot, size: u16::from_le_bytes(*size) }),
        2 => Ok(Event::Load { slot }),
        3 => Ok(Event::Invalidate { slot }),
        4 => Ok(Event::Rejected { slot }),
        _ => Err(TraceFlaw::Operation { record: index, operation: *operation }),
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
        let events = parse(&trace(&records)).expect("a whole trace");
        let expected = [
            Event::Store { slot: 7, size: 500 },
            Event::Load { slot: 7 },
            Event::Invalidate { slot: 7 },
            Event::Rejected { slot: 70_000 },
        ];
        assert_eq!(events, expected);
    }

    #[test]
    fn other_files_are_refused() {
        assert_eq!(parse(b"ZTRACE01"), Err(TraceFlaw::NoHeader));
        assert_eq!(parse(&[0; 64]), Err(TraceFlaw::NoHeader));
        assert_eq!(parse(&trace(&[])), Err(TraceFlaw::NoRecords));
    }

    #[test]
    fn cut_trace_is_refused() {
        let mut bytes = trace(&[record(1, 500, 7), record(2, 0, 7)]);
        bytes.pop();
        assert_eq!(parse(&bytes), Err(TraceFlaw::Length { promised: 2, bytes: 31 }));
    }

    #[test]
    fn unknown_operation_is_refused() {
        let bytes = trace(&[record(1, 500, 7), record(9, 0, 7)]);
        assert_eq!(parse(&bytes), Err(TraceFlaw::Operation { record: 1, operation: 9 }));
    }

    #[test]
    fn builtin_trace_is_consistent() {
        let trace = Trace::builtin();
        assert_eq!((trace.name(), trace.events().len()), ("cc1", 175_000));
        let mut held = std::collections::HashSet::new();
        for event in trace.events() {
            match *event {
                Event::Store { slot, .. } => assert!(held.insert(slot), "slot {slot} is held"),
                Event::Load { slot } => assert!(held.contains(&slot), "slot {slot} is empty"),
                Event::Invalidate { slot } => assert!(held.remove(&slot), "slot {slot} is empty"),
                Event::Rejected { slot } => _ = held.remove(&slot),
            }
        }
        assert_eq!(trace.stores(), 80_377);
        assert_eq!(held.len(), 33_081);
    }

    #[test]
    fn file_is_read_raw_and_packed() {
        let bytes = trace(&[record(1, 500, 7), record(1, 0, 7), record(1, 9, 8)]);
        let folder = std::env::temp_dir().join(format!("zfold-trace-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("temporary directory");
        let (raw, packed) = (folder.join("small.ztr"), folder.join("small.ztr.zst"));
        std::fs::write(&raw, &bytes).expect("temporary file");
        std::fs::write(&packed, zstd::encode_all(bytes.as_slice(), 1).expect("memory"))
            .expect("temporary file");
        for path in [raw, packed] {
            let trace = Trace::from_file(&path).expect("a whole trace");
            assert_eq!((trace.name(), trace.events().len()), ("small", 3));
            assert_eq!((trace.stores(), trace.slots().collect()), (3, vec![7, 7, 8]));
        }
        std::fs::remove_dir_all(&folder).expect("temporary directory");
    }
}
