//! The label of a snapshot, which says of what device it is.

use serde::{Deserialize, Serialize};

/// A snapshot's description of its device.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Label {
    /// Size in bytes.
    pub(super) size: u64,
}
