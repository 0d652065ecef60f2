//! What all commands share: how a command ends, and how people write and read sizes, times, tables.

pub(crate) mod backing;
pub(crate) mod clean;
pub(crate) mod duration;
pub(crate) mod exit;
pub(crate) mod far;
pub(crate) mod far_watch;
pub(crate) mod file;
pub(crate) mod progress;
pub(crate) mod size;
pub(crate) mod table;
