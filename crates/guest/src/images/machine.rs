//! What a VMM keeps of a machine besides its memory: two documents, stored with the image.
//!
//! They lie behind the pages and the working set, in the image's own range of keys, so they count
//! against the limit, are saved with the image, and go with it. zfold returns them byte for byte.

use serde::{Deserialize, Serialize};
use zfold_uffd::page::PAGE;

/// Most bytes of a document.
pub(crate) const DOCUMENT_MAX: u64 = 64 << 20;

/// A machine's documents, as its VMM sent them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Machine {
    /// How it is configured.
    pub(crate) config: Vec<u8>,
    /// The state of its processors and devices.
    pub(crate) state: Vec<u8>,
}

/// Bytes of the documents.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(super) struct Lengths(u64, u64);

impl Lengths {
    pub(super) fn of(machine: &Machine) -> Self {
        Self(machine.config.len() as u64, machine.state.len() as u64)
    }

    /// Returns how many pages they take.
    pub(super) fn pages(self) -> u64 {
        self.0.div_ceil(PAGE as u64) + self.1.div_ceil(PAGE as u64)
    }

    /// Returns how many pages they take, unless one is too long.
    pub(super) fn checked_pages(&self) -> Option<u64> {
        (self.0.max(self.1) <= DOCUMENT_MAX).then(|| self.pages())
    }

    pub(super) fn bytes(self) -> u64 {
        self.0 + self.1
    }

    /// Returns the bytes of each.
    pub(super) fn each(self) -> [u64; 2] {
        [self.0, self.1]
    }
}
