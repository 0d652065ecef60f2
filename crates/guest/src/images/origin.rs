//! The image and the pages that a guest's Diff snapshot builds on.

use std::ops::Range;
use std::sync::Arc;

use super::image::Image;
use super::page_set::PageSet;

/// The image from which a guest was restored, and the pages that the guest gave up since: a Diff
/// snapshot has no pages there, and they are zeros.
#[derive(Debug)]
pub struct Origin {
    /// Not claimed: it is compared with the catalog's image, and its pages are not read.
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
