//! Page frames: where they come from ([`source`]), who hands them out ([`arena`]) and how their
//! bytes are reached ([`memory`]).

pub(crate) mod arena;
pub(crate) mod memory;
pub(crate) mod source;
