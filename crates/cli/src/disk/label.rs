//! The label of a snapshot, which says of what device it is.

use std::path::Path;

use serde::{Deserialize, Serialize};
use zfold_store::snapshot;

/// What a snapshot says of its device.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Label {
    /// Size in bytes.
    pub(super) size: u64,
}

/// Returns the size of the device of which a snapshot is, if it says.
pub(super) fn snapshot_size(path: &Path) -> Option<u64> {
    let header = snapshot::header(path).ok()?;
    serde_json::from_slice(&header.label).ok().map(|label: Label| label.size)
}
