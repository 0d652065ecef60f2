//! The label of a snapshot, which says of what device it is.

use serde::{Deserialize, Serialize};

/// What a snapshot says of its device.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Label {
    /// Size in bytes.
    pub(super) size: u64,
}
