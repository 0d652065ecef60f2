//! A page leaves: the evictor picks it and moves it out, and `retire` takes what is left of pages
//! that nobody needs.
//!
//! `settle` says where pages are that were to be moved out, `discards` is about pages that the
//! program gives up, `fixed` about those that cannot leave now, and `protected` about those of
//! them that cannot be written to.

pub(crate) mod discards;
pub(crate) mod evictor;
pub(crate) mod fixed;
pub(crate) mod protected;
pub(crate) mod retire;
pub(crate) mod settle;
