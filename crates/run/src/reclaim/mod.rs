//! A page leaves, a file a step: the evictor has it picked (`pick`), `move_out` has the helper move
//! it (`mover`), `keep` records where it is, `read` reads it into the swap cache, and `let_go` has
//! it compressed if it was not taken back ([`crate::cold`]).
//!
//! | file | what is there |
//! | --- | --- |
//! | `evictor` | the thread: when pages leave |
//! | `discards` | pages that the program discards |
//! | `fixed`, `again`, `protected` | pages that cannot leave now; those that cannot be written to |
//! | `forks` | what processes share |
//! | `marks` | which pages were accessed, where that is seen |
//! | `victim`, `lost` | who ends when nothing can leave, or when pages are lost |

pub(crate) mod again;
pub(crate) mod discards;
pub(crate) mod evictor;
pub(crate) mod fixed;
pub(crate) mod forks;
pub(crate) mod keep;
pub(crate) mod let_go;
pub(crate) mod lost;
pub(crate) mod marks;
pub(crate) mod move_out;
pub(crate) mod mover;
pub(crate) mod pick;
pub(crate) mod protected;
pub(crate) mod read;
pub(crate) mod victim;
