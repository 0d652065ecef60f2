//! What `contrib` offers to containers, CI and services, run as these run it: the installer from a
//! release, the action, the feature, and the examples that the guide names.

#[path = "../common/mod.rs"]
mod common;

mod cases;
mod examples;
mod install;
#[allow(dead_code, reason = "shared with the tests of real programs")]
#[path = "../programs/needs.rs"]
mod needs;
mod release;

use std::path::{Path, PathBuf};

/// Returns a file or folder of `contrib`.
pub(crate) fn contrib(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib").join(name)
}
