//! Memory of a pool: page frames: their source ([`source`]), their allocation ([`arena`]) and
//! access to their bytes ([`frames`]); tables over reserved addresses ([`slab`]), lists through
//! them ([`list`]) and the order of last use ([`age`]).

pub(crate) mod age;
pub(crate) mod arena;
pub(crate) mod frames;
pub(crate) mod list;
pub(crate) mod slab;
pub(crate) mod source;
