//! The address spaces of a run, the store that they share, and their charges.
//!
//! The lock order, and which threads wait for which, is at the head of [`shared`]; all other
//! modules follow it.
//!
//! | file | what is there |
//! | --- | --- |
//! | `shared` | what all threads share; the order of locks |
//! | `managed` | an address space: its core under a lock, its mover, its place in the family |
//! | `access`, `mover`, `staging` | how pages are filled in, and moved out |
//! | `keys`, `swap_cache`, `bytes` | where pages are that have left |
//! | `storing`, `copies` | how they get to the store, and what it keeps of those that come back |
//! | `budget`, `kinds` | what is charged, what cannot leave |
//! | `starving` | pages that found no room, and the process that ends for that |
//! | `asked`, `polls`, `signal` | work for other threads, and how they are woken |
//! | `maps` | what `/proc` says of a space |
//! | `again`, `refusals` | pages that could not be moved, spaces that cannot be managed |

pub(crate) mod access;
pub(crate) mod again;
pub(crate) mod asked;
pub(crate) mod budget;
pub(crate) mod bytes;
pub(crate) mod copies;
pub(crate) mod keys;
pub(crate) mod kinds;
pub(crate) mod managed;
pub(crate) mod maps;
pub(crate) mod mover;
pub(crate) mod polls;
pub(crate) mod refusals;
pub(crate) mod shared;
pub(crate) mod signal;
pub(crate) mod staging;
pub(crate) mod starving;
pub(crate) mod storing;
pub(crate) mod swap_cache;
