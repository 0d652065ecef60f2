//! The limit: what the program has is watched, spaces are closed when that comes near the limit,
//! and calls that would pass it are held until there is room.

pub(crate) mod close;
pub(crate) mod looks;
pub(crate) mod requests;
pub(crate) mod strangers;
pub(crate) mod watch;
