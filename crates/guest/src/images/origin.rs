//! What a guest's difference is over.

use std::ops::Range;
use std::sync::Arc;

use super::image::Image;
use super::page_set::PageSet;

/// The image from which a guest was restored, and the pages of it that the guest gave up since: a
/// difference has no page where they were, and they are zeros.
#[derive(Debug)]
pub struct Origin {
    /// Not claimed: it is compared with what the catalog has, and its pages are not read.
    image: Arc<Image>,
    given_up: PageSet,
}

impl Origin {
    pub(crate) fn new(image: Arc<Image>, given_up: impl Iterator<Item = Range<u64>>) -> Self {
        let set = PageSet::new(image.pages());
        given_up.flatten().for_each(|page| set.add(page));
        Self { image, given_up: set }
    }

    pub(super) fn image(&self) -> &Arc<Image> {
        &self.image
    }

    pub(crate) fn given_up(&self) -> &PageSet {
        &self.given_up
    }
}
