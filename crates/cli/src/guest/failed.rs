//! What guest servers say when something fails.

use std::path::Path;

use crate::shared::exit::Failure;

/// Said of what comes while the server ends.
pub(super) const LATE: &str = "the server is ending, and takes nothing new";

pub(super) fn not_saved(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("cannot save to {}: {why}; name another file", path.display()))
}

pub(super) fn system(what: &str, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot {what}: {error}; raise the limits of this user (ulimit -a)"))
}
