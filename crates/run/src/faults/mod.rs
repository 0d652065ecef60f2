//! A missing page comes in: messages of the kernel are read, and the waiting thread is answered.
//!
//! `readers` wait for messages, `messages` reads them into the core of their space, and `answer`
//! brings pages from the swap cache or the store. `ends` brings in the pages that the kernel
//! touches when a thread ends.

pub(crate) mod answer;
pub(crate) mod ends;
pub(crate) mod messages;
pub(crate) mod readers;
