//! A page leaves: the evictor picks it, `move_out` has the helper move it (`mover`), `keep` records
//! where it is, `read` reads it into the swap cache, and `let_go` has it compressed if it was
//! not taken back ([`crate::cold`]).
//!
//! `discards` handles pages that the program discards, `fixed` pages that cannot leave now, and
//! `protected` those of them that cannot be written to; `forks` has what processes share, and
//! `victim` who ends when nothing can leave. `lost` ends spaces that have lost pages.

pub(crate) mod again;
pub(crate) mod discards;
pub(crate) mod evictor;
pub(crate) mod fixed;
pub(crate) mod forks;
pub(crate) mod keep;
pub(crate) mod let_go;
pub(crate) mod lost;
pub(crate) mod move_out;
pub(crate) mod mover;
pub(crate) mod protected;
pub(crate) mod read;
pub(crate) mod victim;
