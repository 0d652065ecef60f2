//! The part that both sections share.

use crate::experiment::content::PAGE_BYTES;
use crate::experiment::harness::sized;
use crate::experiment::system::scratch::Scratch;
use crate::experiment::{Error, Settings};

/// Name of the experiment.
pub const NAME: &str = "pageout";

/// The part that both sections share.
#[derive(Debug)]
pub(super) struct Bench<'a> {
    pub(super) settings: &'a Settings,
    /// Reports; of its owner only.
    pub(super) scratch: Scratch,
    /// Pages that each process unmaps.
    pub(super) pages: usize,
    /// Pages of which random ones are accessed, and how often.
    pub(super) random_pages: usize,
    pub(super) accesses: usize,
}

impl<'a> Bench<'a> {
    pub(super) fn new(settings: &'a Settings) -> Result<Self, Error> {
        Ok(Self {
            settings,
            scratch: Scratch::new()?,
            pages: sized(settings, (256 << 20) / PAGE_BYTES, (16 << 20) / PAGE_BYTES).max(64),
            random_pages: sized(settings, (512 << 20) / PAGE_BYTES, (64 << 20) / PAGE_BYTES)
                .max(2048),
            accesses: sized(settings, 256 << 10, 16 << 10),
        })
    }
}
