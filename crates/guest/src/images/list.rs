//! The list of images, which is the label of a snapshot: which keys belong to which image (I3).

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use zfold_store::files::open_believed;
use zfold_store::snapshot::{self, SnapshotReport};

use super::error::ImageError;
use super::image::{self, Image};
use super::machine::Lengths;
use super::{Catalog, Images, check_name, import, keys};

/// Name of the list's format.
const SCHEMA: &str = "zfold.guest-images/1";

/// More bytes than the numbers of an image take in the list, with what is between them: the first
/// key and the pages have ten digits, the lengths eight each, and the hash twenty.
const NUMBERS: usize = 96;

/// The list.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct List {
    schema: String,
    images: Vec<Listed>,
}

/// An image in the list: name, first key, pages, base; if there are documents, their bytes; and
/// if these are a state file, its hash, so that nothing has to be read for it.
#[derive(Debug, Deserialize, Serialize)]
struct Listed(
    String,
    u64,
    u64,
    Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")] Option<Lengths>,
    #[serde(default, skip_serializing_if = "Option::is_none")] Option<u64>,
);

impl Images {
    /// Saves all images with their working sets to a file, which is replaced as a whole.
    ///
    /// # Errors
    /// [`ImageError`]; the previous file stays as it was.
    pub fn save_to(&self, path: &Path) -> Result<SnapshotReport, ImageError> {
        let _changes = self.changes.lock();
        let images: Vec<_> = self.catalog.lock().images.values().cloned().collect();
        images.iter().try_for_each(|image| image.save_set())?;
        // An image that is added from here on is in the snapshot without its name, so not at all;
        // none is removed before the snapshot is complete.
        let label = self.catalog.lock().label();
        Ok(self.store.save_to(&label, path)?)
    }

    /// Fills the empty store with the images of a file.
    ///
    /// # Errors
    /// [`ImageError`]; there is no image then.
    pub fn load_from(&self, path: &Path) -> Result<SnapshotReport, ImageError> {
        let header = snapshot::header(&mut open_believed(path)?)?;
        let list: List = serde_json::from_slice(&header.label).map_err(|_| ImageError::Foreign)?;
        if list.schema != SCHEMA {
            return Err(ImageError::Foreign);
        }
        let report = self.store.restore_from(path)?;
        let read = self.enter_listed(list.images).map(|()| self.drop_strays());
        if read.is_err() {
            *self.catalog.lock() = Catalog::default();
            self.drop_pages(0..keys::KEYS);
        }
        read.map(|()| report)
    }

    /// Makes the images of a list, which is not trusted, bases first.
    fn enter_listed(&self, mut listed: Vec<Listed>) -> Result<(), ImageError> {
        let damaged = ImageError::Damaged;
        while !listed.is_empty() {
            let before = listed.len();
            let mut rest = Vec::new();
            for Listed(name, first, pages, base, machine, hash) in listed {
                let mut catalog = self.catalog.lock();
                let below = base.as_ref().map(|base| catalog.images.get(base).cloned());
                let Some(below) = below.map_or(Some(None), |found| found.map(Some)) else {
                    rest.push(Listed(name, first, pages, base, machine, hash));
                    continue;
                };
                check_name(&name).map_err(|_| damaged("a name"))?;
                let len = || keys::keys_of(pages, machine.map_or(0, Lengths::pages));
                let fits = machine.is_none_or(Lengths::are_right)
                    && (1..keys::KEYS).contains(&pages)
                    && first.saturating_add(len()) <= keys::KEYS
                    && below.as_ref().is_none_or(|below| {
                        below.pages() == pages && below.chain().count() < image::CHAIN_MAX
                    });
                if !fits {
                    return Err(damaged("a length"));
                }
                let mut image = Image::new(name.clone(), self.places(), first, pages, below);
                image.machine = machine;
                if catalog.taken().iter().any(|keys| overlap(keys, &image.keys())) {
                    return Err(damaged("two images overlap"));
                }
                image.own_pages = import::own_pages(&image);
                image.state_hash = hash.filter(|_| machine.is_some_and(Lengths::is_state));
                image.load_set();
                if catalog.images.insert(name, Arc::new(image)).is_some() {
                    return Err(damaged("a name that is there twice"));
                }
            }
            if rest.len() == before {
                return Err(damaged("a base that is missing"));
            }
            listed = rest;
        }
        Ok(())
    }

    /// Drops the pages between images: those of imports that had not ended when the snapshot was
    /// saved.
    fn drop_strays(&self) {
        let mut from = 0;
        for keys in self.catalog.lock().taken() {
            self.gate.within(|| self.store.invalidate_range(from..keys.start));
            from = keys.end;
        }
        self.drop_pages(from..keys::KEYS);
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

impl Catalog {
    /// Returns a length that the list does not exceed; writing it would take longer.
    pub(super) fn label_bound(&self) -> usize {
        let names =
            |image: &Arc<Image>| image.name().len() + image.base().map_or(0, |of| of.name().len());
        SCHEMA.len() + 64 + self.images.values().map(|image| names(image) + NUMBERS).sum::<usize>()
    }

    /// Returns the list of images.
    pub(super) fn label(&self) -> Vec<u8> {
        let listed = |image: &Arc<Image>| {
            let (name, base) = (image.name().into(), image.base().map(|base| base.name().into()));
            Listed(name, image.first, image.pages(), base, image.machine, image.state_hash)
        };
        let list =
            List { schema: SCHEMA.to_owned(), images: self.images.values().map(listed).collect() };
        let label = serde_json::to_vec(&list).expect("names and numbers are JSON");
        debug_assert!(label.len() <= self.label_bound(), "{} bytes", label.len());
        label
    }
}
