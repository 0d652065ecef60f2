//! What a VMM keeps of a machine besides its memory, stored with the image: two documents of
//! cloud-hypervisor, or the state file of Firecracker, which has its configuration in it.
//!
//! They lie behind the pages and the working set, in the image's own range of keys, so they count
//! against the limit, are saved with the image, and go with it. zfold returns them byte for byte.

use std::fs::File;
use std::io::{self, Read as _};

use serde::{Deserialize, Serialize};
use zfold_uffd::page::PAGE;

/// Most bytes of a document.
pub(crate) const DOCUMENT_MAX: u64 = 64 << 20;

/// A machine's documents, as its VMM sent them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Machine {
    /// How it is configured; empty if the state says that, too: cloud-hypervisor's never is.
    pub(crate) config: Vec<u8>,
    /// The state of its processors and devices.
    pub(crate) state: Vec<u8>,
}

impl Machine {
    /// Returns whether it is the state file of a snapshot, rather than one that can be restored.
    pub(crate) fn is_state(&self) -> bool {
        Lengths::of(self).is_state()
    }

    /// Returns one with the state file of a snapshot; nothing if it is empty or too long.
    pub(super) fn of_state(file: &File) -> io::Result<Option<Self>> {
        let mut state = Vec::new();
        file.take(DOCUMENT_MAX + 1).read_to_end(&mut state)?;
        let is_right = (1..=DOCUMENT_MAX).contains(&(state.len() as u64));
        Ok(is_right.then(|| Self { config: Vec::new(), state }))
    }
}

/// Bytes of the documents.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(super) struct Lengths(pub(super) u64, pub(super) u64);

impl Lengths {
    pub(super) fn of(machine: &Machine) -> Self {
        Self(machine.config.len() as u64, machine.state.len() as u64)
    }

    /// Returns whether they are those of a state file alone.
    pub(super) fn is_state(self) -> bool {
        self.0 == 0
    }

    /// Returns whether they may have these lengths.
    pub(super) fn are_right(self) -> bool {
        self.0.max(self.1) <= DOCUMENT_MAX
    }

    /// Returns how many pages they take.
    pub(super) fn pages(self) -> u64 {
        self.0.div_ceil(PAGE as u64) + self.1.div_ceil(PAGE as u64)
    }

    pub(super) fn bytes(self) -> u64 {
        self.0 + self.1
    }
}
