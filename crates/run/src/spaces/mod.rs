//! The address spaces of a run, and their charges.
//!
//! The lock order, and which threads wait for which, is at the head of [`crate::shared`]; all other
//! modules follow it.
//!
//! | file | what is there |
//! | --- | --- |
//! | `managed`, `sharing` | an address space: its core under a lock, its helper, its family |
//! | `access`, `helper`, `staging` | how pages are filled in, and moved out |
//! | `bytes` | bytes of pages on their way out |
//! | `budget`, `kinds` | what is charged, what cannot leave |
//! | `mailbox` | its faults that were read |
//! | `asked`, `waiting`, `polls`, `signal` | work for other threads, and how they are woken |
//! | `maps`, `survey` | what `/proc` says of a space, and when it is read again |
//! | `keys` | the store, and which keys of it are in use |
//! | `books`, `refusals` | which spaces there are, and which processes cannot be managed |

pub(crate) mod access;
pub(crate) mod asked;
pub(crate) mod books;
pub(crate) mod budget;
pub(crate) mod bytes;
pub(crate) mod helper;
pub(crate) mod keys;
pub(crate) mod kinds;
pub(crate) mod mailbox;
pub(crate) mod managed;
pub(crate) mod maps;
pub(crate) mod polls;
pub(crate) mod refusals;
pub(crate) mod sharing;
pub(crate) mod signal;
pub(crate) mod staging;
pub(crate) mod survey;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod waiting;
