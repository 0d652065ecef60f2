//! Where the pages of an experiment come from.
//!
//! A [`PageSet`] is a named run of whole pages in memory: a capture that is part of this crate, any
//! file cut in pages, or the anonymous memory of a live process. Nothing is printed here; the rest
//! of a caller's message is in [`PageSet::population`].

mod error;
mod pages;
mod process;
mod sample;
#[cfg(test)]
mod tests;

pub use error::{InputError, plain};
pub use pages::PageSet;
pub use sample::Sampling;
