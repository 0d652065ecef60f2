//! Where the memory of a machine lies: its slots, as its configuration names them.
//!
//! The image holds the slots one after another, in the order of the configuration. A slot is a
//! range of the guest's addresses, and a range of a file: two slots of one zone lie in one file, at
//! different places.

use std::ops::Range;

use serde::Deserialize;
use zfold_uffd::page::PAGE;

use super::wire::Refused;

/// Most slots of a machine.
pub(super) const SLOTS_MAX: usize = 64;

/// The part of a configuration that zfold reads.
#[derive(Debug, Deserialize)]
struct Config {
    memory_manager_data: Manager,
}

#[derive(Debug, Deserialize)]
struct Manager {
    guest_ram_mappings: Vec<Mapping>,
}

#[derive(Debug, Deserialize)]
struct Mapping {
    slot: u32,
    gpa: u64,
    size: u64,
    file_offset: u64,
}

/// A slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) number: u32,
    /// Addresses of the guest.
    pub(super) addresses: Range<u64>,
    /// Where it begins in its file, in bytes.
    pub(super) from: u64,
    /// Pages of the image.
    pub(super) pages: Range<u64>,
}

impl Slot {
    /// Returns the bytes that its file has at least.
    pub(super) fn file_len(&self) -> u64 {
        self.at(self.pages.end)
    }

    /// Returns where a page of the image lies in its file.
    pub(super) fn at(&self, page: u64) -> u64 {
        self.from + (page - self.pages.start) * PAGE as u64
    }
}

/// The slots of a machine, in the order of its configuration.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) slots: Vec<Slot>,
}

impl Layout {
    /// Reads the layout from a configuration.
    ///
    /// # Errors
    /// [`Refused`].
    pub(super) fn of(config: &[u8]) -> Result<Self, Refused> {
        let config: Config = serde_json::from_slice(config).map_err(|error| {
            Refused(format!("its configuration does not say where its memory lies ({error})"))
        })?;
        let mappings = config.memory_manager_data.guest_ram_mappings;
        if !(1..=SLOTS_MAX).contains(&mappings.len()) {
            let number = mappings.len();
            return Err(Refused(format!(
                "its memory has {number} slots: 1 to {SLOTS_MAX} can be stored"
            )));
        }
        let mut layout = Self { slots: Vec::with_capacity(mappings.len()) };
        for mapping in mappings {
            let slot = layout.slot(&mapping)?;
            let is_same = |other: &Slot| {
                other.number == slot.number
                    || other.addresses.start < slot.addresses.end
                        && slot.addresses.start < other.addresses.end
            };
            if layout.slots.iter().any(is_same) {
                let number = slot.number;
                return Err(Refused(format!(
                    "slot {number} is there twice, or overlaps another one"
                )));
            }
            layout.slots.push(slot);
        }
        Ok(layout)
    }

    fn slot(&self, mapping: &Mapping) -> Result<Slot, Refused> {
        let number = mapping.slot;
        let is_whole = |bytes: u64| bytes.is_multiple_of(PAGE as u64);
        let range = || {
            // A file's length is signed.
            let file_end = mapping.file_offset.checked_add(mapping.size)?;
            i64::try_from(file_end).ok()?;
            let end = mapping.gpa.checked_add(mapping.size)?;
            let first = self.pages();
            let pages = first..first.checked_add(mapping.size / PAGE as u64)?;
            let is_right = mapping.size > 0
                && [mapping.gpa, mapping.size, mapping.file_offset].into_iter().all(is_whole);
            let from = mapping.file_offset;
            is_right.then_some(Slot { number, addresses: mapping.gpa..end, from, pages })
        };
        range().ok_or_else(|| Refused(format!("slot {number} is not a range of whole pages")))
    }

    /// Returns the pages of all slots.
    pub(super) fn pages(&self) -> u64 {
        self.slots.last().map_or(0, |slot| slot.pages.end)
    }

    /// Returns the slot that has these addresses of the guest, by its place in the list, and its
    /// pages there.
    pub(super) fn find(&self, at: u64, len: u64) -> Option<(usize, Range<u64>)> {
        let end = at.checked_add(len).filter(|_| len > 0)?;
        let holds = |slot: &Slot| slot.addresses.start <= at && end <= slot.addresses.end;
        let place = self.slots.iter().position(holds)?;
        let slot = &self.slots[place];
        let page = |at: u64| slot.pages.start + (at - slot.addresses.start) / PAGE as u64;
        Some((place, page(at)..page(end - 1) + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(mappings: &str) -> Vec<u8> {
        format!(
            r#"{{"vm_config":{{"cpus":{{"boot_vcpus":1}}}},
                "memory_manager_data":{{"guest_ram_mappings":[{mappings}],"boot_ram":1}}}}"#
        )
        .into_bytes()
    }

    fn mapping(slot: u32, gpa: u64, size: u64, file_offset: u64) -> String {
        format!(
            r#"{{"slot":{slot},"gpa":{gpa},"size":{size},"zone_id":"mem0","virtio_mem":false,
                "file_offset":{file_offset}}}"#
        )
    }

    fn layout(mappings: &[String]) -> Result<Layout, Refused> {
        Layout::of(&config(&mappings.join(",")))
    }

    #[test]
    fn slots_lie_in_the_image_one_after_another() {
        let two = [mapping(3, 0, 0x4000, 0), mapping(1, 1 << 32, 0x3000, 0x4000)];
        let layout = layout(&two).expect("right");
        assert_eq!((layout.slots.len(), layout.pages()), (2, 7));
        let slot = &layout.slots[1];
        assert_eq!((slot.number, slot.pages.clone(), slot.from), (1, 4..7, 0x4000));
        assert_eq!((slot.at(5), slot.file_len()), (0x5000, 0x7000));
        assert_eq!(layout.find(0x3000, 0x1000), Some((0, 3..4)));
        assert_eq!(layout.find((1 << 32) + 0x1000, 0x2000), Some((1, 5..7)));
        assert_eq!(layout.find(0x1010, 0x10), Some((0, 1..2)));
        for (at, len) in [(0x3000, 0x2000), (0x4000, 1), (0, 0), (u64::MAX, 2), (1 << 40, 4096)] {
            assert_eq!(layout.find(at, len), None, "{at} {len}");
        }
    }

    #[test]
    fn what_cannot_be_memory_is_refused() {
        let refused = |mappings: &[String], part: &str| {
            let error = layout(mappings).expect_err(part).to_string();
            assert!(error.contains(part), "{error}");
        };
        refused(&[], "0 slots");
        let many: Vec<_> = (0..65).map(|n| mapping(n, u64::from(n) << 20, 4096, 0)).collect();
        refused(&many, "65 slots");
        for wrong in [
            mapping(7, 0, 0, 0),
            mapping(7, 0, 4097, 0),
            mapping(7, 1, 4096, 0),
            mapping(7, 0, 4096, 512),
            mapping(7, u64::MAX - 4095, 4096, 0),
            mapping(7, 0, 4096, u64::MAX - 4095),
            mapping(7, 0, 1 << 63, 0),
        ] {
            refused(&[wrong], "slot 7 is not a range");
        }
        refused(&[mapping(1, 0, 4096, 0), mapping(1, 8192, 4096, 0)], "slot 1 is there twice");
        refused(&[mapping(1, 0, 8192, 0), mapping(2, 4096, 4096, 0)], "slot 2 is there twice");
        for text in ["", "[]", "{}", r#"{"memory_manager_data":{}}"#, "\u{0}"] {
            let refused = Layout::of(text.as_bytes()).expect_err(text).0;
            assert!(refused.contains("does not say where"), "{refused}");
        }
        let no_place = r#"{"slot":0,"gpa":0,"size":4096}"#;
        assert!(Layout::of(&config(no_place)).is_err());
    }
}
