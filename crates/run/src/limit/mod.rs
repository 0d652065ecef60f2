//! The limit: the program's memory is watched, spaces are closed when it nears the limit, and calls
//! that would exceed the limit are held until there is room.

pub(crate) mod close;
pub(crate) mod forks;
pub(crate) mod looks;
pub(crate) mod requests;
pub(crate) mod strangers;
pub(crate) mod watch;
