//! The userfaultfd handler: what a guest sends first, and its pages from then on.
//!
//! Lock order: the list of guests, then a guest's figures.

pub(crate) mod apart;
pub(crate) mod descriptor;
mod figures;
pub(crate) mod handshake;
pub(crate) mod journal;
pub(crate) mod prompt;
mod server;
pub(crate) mod session;
pub(crate) mod start;

pub use crate::core::fault::{Given, TABLE};
pub use figures::{GuestState, GuestStats, NoOrigin, Served, ServerStats};
pub use server::{Server, ServerOptions};
