//! Code that all commands share: how people write and read sizes, times, tables. `zfold_console`
//! handles the end and the output of a command.

pub(crate) mod backing;
pub(crate) mod duration;
pub(crate) mod far;
pub(crate) mod far_watch;
pub(crate) mod figures;
pub(crate) mod notify;
pub(crate) mod protect;
pub(crate) mod rights;
pub(crate) mod secret;
pub(crate) mod signals;
pub(crate) mod size;
pub(crate) mod table;

pub(crate) use zfold_console::{clean, exit, file, program, progress, terminal};
