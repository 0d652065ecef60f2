//! Memory of a pool: page frames, where they come from ([`source`]), who hands them out
//! ([`arena`]) and how their bytes are reached ([`frames`]); tables over reserved addresses
//! ([`slab`]), lists through them ([`list`]) and the order of last use ([`age`]).

pub(crate) mod age;
pub(crate) mod arena;
pub(crate) mod frames;
pub(crate) mod list;
pub(crate) mod slab;
pub(crate) mod source;
