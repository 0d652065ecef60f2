//! Places for guests, and for connections that may become guests, by image.

use std::collections::BTreeMap;

/// Places that are kept free for each other image.
const KEPT: usize = 16;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Places {
    all: usize,
    taken: BTreeMap<String, Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    number: usize,
    /// Guests connect.
    is_open: bool,
}

impl Places {
    pub(super) fn new(all: usize) -> Self {
        Self { all, taken: BTreeMap::new() }
    }

    /// Keeps places for an image from now on.
    pub(super) fn open(&mut self, image: &str) {
        self.taken.entry(image.to_owned()).or_default().is_open = true;
    }

    /// Keeps none for an image to which no guest connects any longer.
    pub(super) fn close(&mut self, image: &str) {
        if let Some(taken) = self.taken.get_mut(image) {
            taken.is_open = false;
        }
        self.tidy(image);
    }

    /// Returns whether an image may take another place. Of all places, each other image is left
    /// `KEPT`, or its share if that is less: so peers of one image keep those of no other out.
    pub(super) fn has(&self, image: &str) -> bool {
        let kept = KEPT.min(self.all / self.taken.len().max(1));
        let of_others = self.taken.iter().filter(|(name, _)| *name != image);
        let others: usize = of_others.map(|(_, taken)| taken.number.max(kept)).sum();
        self.taken.get(image).map_or(0, |taken| taken.number) + others < self.all
    }

    pub(super) fn take(&mut self, image: &str) -> bool {
        let has = self.has(image);
        if has {
            self.taken.entry(image.to_owned()).or_default().number += 1;
        }
        has
    }

    pub(super) fn leave(&mut self, image: &str) {
        if let Some(taken) = self.taken.get_mut(image) {
            taken.number -= 1;
        }
        self.tidy(image);
    }

    fn tidy(&mut self, image: &str) {
        if self.taken.get(image).is_some_and(|taken| taken.number == 0 && !taken.is_open) {
            self.taken.remove(image);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_leaves_places_for_the_others() {
        let mut places = Places::new(100);
        ["a", "b", "c"].iter().for_each(|image| places.open(image));
        let taken = (0..200).filter(|_| places.take("a")).count();
        assert_eq!((taken, places.has("a"), places.has("b")), (100 - 2 * KEPT, false, true));
        assert_eq!((0..200).filter(|_| places.take("b")).count(), KEPT);
        // Guests of an image that is removed keep their places, and no others are kept for it.
        places.close("c");
        assert_eq!((0..200).filter(|_| places.take("b")).count(), KEPT);
        places.close("a");
        (0..100 - 2 * KEPT).for_each(|_| places.leave("a"));
        assert_eq!((0..200).filter(|_| places.take("b")).count(), 100 - 2 * KEPT);
    }

    #[test]
    fn few_places_are_shared() {
        let mut places = Places::new(3);
        ["a", "b"].iter().for_each(|image| places.open(image));
        assert_eq!((0..9).filter(|_| places.take("a")).count(), 2);
        assert!(places.take("b") && !places.take("b") && !places.take("a"));
        places.leave("a");
        assert!(places.take("b"));
    }
}
