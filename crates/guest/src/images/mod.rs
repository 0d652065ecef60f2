//! Images of guests' memory, by name, in one store.
//!
//! Lock order: `changes`, then `catalog`, then `gate`; all above the store's. The working sets and
//! the counts of claims are atomics; `page_set.rs` and `image.rs` say what they guard. A snapshot
//! holds `changes` instead of the gate (gate/F1), because it may take long.

mod documents;
mod error;
mod gate;
mod image;
mod import;
mod keys;
mod list;
mod machine;
mod origin;
mod page_set;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, RwLockReadGuard};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;
use zfold_store::pool::Lock;

use zfold_store::backing::Backing;
use zfold_store::snapshot::LABEL_MAX;
use zfold_store::{Store, StoreOptions, StoreStats};
use zfold_uffd::page::PAGE;

pub use error::ImageError;
use gate::Gate;
pub(crate) use image::Gated;
pub use image::{Claim, Image};
use import::Holes;
pub use import::Imported;
pub(crate) use import::Part;
pub use keys::KEYS;
pub(crate) use machine::DOCUMENT_MAX;
use machine::Lengths;
pub(crate) use machine::Machine;
pub use origin::Origin;

/// Keys that are dropped at once, and the longest name in bytes.
const DROPPED: u64 = 1 << 16;
const NAME_MAX: usize = 64;

/// Describes an image and what it costs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[non_exhaustive]
pub struct ImageInfo {
    /// Its name.
    pub name: String,
    /// Its base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// Bytes of its pages.
    pub size_bytes: u64,
    /// Pages of 4 KiB of it that differ from its base and are not zeros.
    pub own_pages: u64,
    /// Pages of its working set.
    pub working_set_pages: u64,
    /// Whether guests are recorded.
    pub recorded: bool,
    /// If it is one of a machine, the bytes of its documents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_bytes: Option<u64>,
    /// Bytes of the state file that is kept with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_bytes: Option<u64>,
    /// Its hash by XXH3, of 64 bits, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_xxh3: Option<String>,
}

#[derive(Debug, Default)]
struct Catalog {
    images: BTreeMap<String, Arc<Image>>,
    /// Keys of imports in progress.
    coming: BTreeMap<String, Range<u64>>,
}

/// The images of a store.
///
/// # Examples
/// ```
/// use std::io::Write as _;
/// use zfold_guest::{Images, images_options};
/// use zfold_store::CodecKind;
///
/// let images = Images::new(&images_options(CodecKind::Lz4.into(), None))?;
/// let mut memory = tempfile::tempfile()?;
/// memory.write_all(&[7; 8192])?;
/// memory.set_len(1 << 20)?;
/// images.import("web", &memory, None)?;
///
/// let mut page = [0; 4096];
/// images.claim("web")?.load(1, &mut page)?;
/// assert_eq!(page, [7; 4096]);
/// assert_eq!(images.list()[0].own_pages, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Images {
    store: Arc<Store>,
    /// Where pages go beyond the limit.
    backing: Option<Arc<dyn Backing>>,
    /// Held while an image is removed, or a snapshot is taken.
    changes: Lock<()>,
    catalog: Lock<Catalog>,
    gate: Arc<Gate>,
}

/// Returns the options of a store of images: equal pages share an object.
#[must_use]
pub fn images_options(codec: zfold_store::CodecSpec, limit_bytes: Option<u64>) -> StoreOptions {
    StoreOptions::new(KEYS, codec).with_deduplicate(true).with_limit_bytes(limit_bytes)
}

impl Images {
    /// Returns a store of these options, with no image in it.
    ///
    /// # Errors
    /// Same as [`Store::open`].
    pub fn new(options: &StoreOptions) -> Result<Self, zfold_store::OpenError> {
        let store = Arc::new(Store::open(options)?);
        let backing = options.backing.as_ref().map(|of| Arc::clone(&of.backing));
        let (changes, catalog, gate) = (Lock::default(), Lock::default(), Arc::default());
        Ok(Self { store, backing, changes, catalog, gate })
    }

    /// Returns the store.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Returns the descriptor that a copy of this process needs to use the images.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.backing.as_ref().and_then(|backing| backing.descriptor())
    }

    /// Returns the figures of the store.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        let _open = self.open();
        self.store.stats()
    }

    /// Returns where the pages of images are, and the way there.
    fn places(&self) -> (Arc<Store>, Arc<Gate>) {
        (Arc::clone(&self.store), Arc::clone(&self.gate))
    }

    /// Lets the caller use the store for a moment (gate/F1).
    pub(crate) fn open(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.open()
    }

    /// Does `work` while no thread is within the store, and no image comes or goes.
    pub(crate) fn standing_still<T>(&self, work: impl FnOnce() -> T) -> T {
        let _changes = self.changes.lock();
        let _catalog = self.catalog.lock();
        let _closed = self.gate.close();
        work()
    }

    /// In a copy of this memory, forgets the original's threads: no image is in use, and none comes
    /// or goes.
    pub(crate) fn forget_others(&self) {
        let mut catalog = self.catalog.lock();
        catalog.images.values().for_each(|image| image.forget_claims());
        let coming = std::mem::take(&mut catalog.coming);
        drop(catalog);
        coming.into_values().for_each(|keys| self.drop_pages(keys));
    }

    /// Makes an image from a memory file. With a base, holes of the file, and pages that equal the
    /// base's, come from the base; without one, holes are zeros.
    ///
    /// # Errors
    /// [`ImageError`]; there is no such image then, and nothing of it in the store.
    pub fn import(
        &self,
        name: &str,
        file: &File,
        base: Option<&str>,
    ) -> Result<Imported, ImageError> {
        self.import_with(name, file, base, None)
    }

    /// The same, and keeps the state file of the snapshot with the image: with that of another one,
    /// a guest would find another memory than its processors have.
    ///
    /// # Errors
    /// Same as [`import`](Self::import), and [`ImageError::State`].
    pub fn import_with(
        &self,
        name: &str,
        file: &File,
        base: Option<&str>,
        state: Option<&File>,
    ) -> Result<Imported, ImageError> {
        let state = state.map(read_state).transpose()?;
        let part = Part { file, from: 0, pages: import::pages_of(file)? };
        self.import_as(name, &[part], (Holes::OfBase, state.as_ref()), |catalog| catalog.base(base))
    }

    /// Makes an image of a machine: its memory, which is `parts` one after another, and its
    /// documents. Holes of the files are zeros. With a base, pages that equal the base's come from
    /// the base.
    ///
    /// # Errors
    /// [`ImageError`]; there is no such image then, and nothing of it in the store.
    pub(crate) fn import_machine(
        &self,
        name: &str,
        parts: &[Part<'_>],
        machine: &Machine,
        base: Option<&str>,
    ) -> Result<Imported, ImageError> {
        self.import_as(name, parts, (Holes::Zeros, Some(machine)), |catalog| catalog.base(base))
    }

    /// Makes an image from a Diff snapshot of a guest: a hole of the file at a page that the guest
    /// gave up is zeros. Keeps the snapshot's state file with it.
    ///
    /// # Errors
    /// Same as [`import_with`](Self::import_with).
    pub fn import_over(
        &self,
        name: &str,
        file: &File,
        origin: &Origin,
        state: Option<&File>,
    ) -> Result<Imported, ImageError> {
        let state = state.map(read_state).transpose()?;
        let part = Part { file, from: 0, pages: import::pages_of(file)? };
        let how = (Holes::GivenUp(origin.given_up()), state.as_ref());
        self.import_as(name, &[part], how, |catalog| {
            catalog.get_same(origin.image()).map(Claim::new).map(Some)
        })
    }

    fn import_as(
        &self,
        name: &str,
        parts: &[Part<'_>],
        (holes, machine): (Holes<'_>, Option<&Machine>),
        base: impl FnOnce(&Catalog) -> Result<Option<Claim>, ImageError>,
    ) -> Result<Imported, ImageError> {
        check_name(name)?;
        let pages = parts.iter().map(|part| part.pages).sum();
        let lengths = machine.map(Lengths::of);
        let (keys, base) = self.reserve(name, pages, lengths, base)?;
        let below = base.as_ref().map(|base| Arc::clone(base.image()));
        let mut image = Image::new(name.into(), self.places(), keys.start, pages, below);
        image.machine = lengths;
        let state = machine.filter(|machine| machine.is_state());
        image.state_hash = state.map(|machine| xxh3_64(&machine.state));
        let imported = import::import(&image, parts, holes).and_then(|imported| {
            machine.map_or(Ok(()), |machine| image.store_machine(machine))?;
            Ok(imported)
        });
        let entered = imported.and_then(|imported| {
            image.own_pages = imported.stored_pages;
            self.enter(image).map(|()| imported)
        });
        if entered.is_err() {
            self.drop_pages(keys);
        }
        self.catalog.lock().coming.remove(name);
        entered
    }

    /// Takes a name and a range of keys.
    fn reserve(
        &self,
        name: &str,
        pages: u64,
        machine: Option<Lengths>,
        base: impl FnOnce(&Catalog) -> Result<Option<Claim>, ImageError>,
    ) -> Result<(Range<u64>, Option<Claim>), ImageError> {
        let mut catalog = self.catalog.lock();
        if catalog.images.contains_key(name) || catalog.coming.contains_key(name) {
            return Err(ImageError::Exists(name.into()));
        }
        let base = base(&catalog)?;
        if let Some(base) = &base {
            if base.pages() != pages {
                let (file, base) = (pages * PAGE as u64, base.pages() * PAGE as u64);
                return Err(ImageError::BaseLength { file, base });
            }
            if base.chain().count() >= image::CHAIN_MAX {
                return Err(ImageError::Chain(base.name().into()));
            }
        }
        let len = keys::keys_of(pages, machine.map_or(0, Lengths::pages));
        let first = keys::free(catalog.taken().into_iter(), len).ok_or(ImageError::NoKeys)?;
        catalog.coming.insert(name.into(), first..first + len);
        Ok((first..first + len, base))
    }

    /// Gives an image its name, once its pages are stored (I1).
    fn enter(&self, image: Image) -> Result<(), ImageError> {
        let mut catalog = self.catalog.lock();
        let name = image.name().to_owned();
        catalog.images.insert(name.clone(), Arc::new(image));
        if catalog.label_bound() > LABEL_MAX {
            catalog.images.remove(&name);
            return Err(ImageError::TooMany(catalog.images.len()));
        }
        Ok(())
    }

    /// Writes an image as a memory file, sparse, to `file`, which is empty; returns how many pages
    /// are not holes.
    ///
    /// # Errors
    /// [`ImageError`]; the file then holds an undefined part of the image.
    pub fn export(&self, name: &str, file: &File) -> Result<u64, ImageError> {
        self.claim(name)?.export(file)
    }

    /// Removes an image.
    ///
    /// # Errors
    /// Guests or images use it, or there is none.
    pub fn remove(&self, name: &str) -> Result<(), ImageError> {
        self.remove_after(name, || {})
    }

    /// Removes an image; its pages are dropped after `forget`, in which copies of this process are
    /// replaced that have the image still (keep/H8).
    ///
    /// # Errors
    /// Same as [`remove`](Self::remove).
    pub fn remove_after(&self, name: &str, forget: impl FnOnce()) -> Result<(), ImageError> {
        let keys = {
            let _changes = self.changes.lock();
            let mut catalog = self.catalog.lock();
            let image = Arc::clone(catalog.get(name)?);
            let is_on_it =
                |other: &&Arc<Image>| other.base().is_some_and(|base| Arc::ptr_eq(base, &image));
            let above = catalog.images.values().find(is_on_it);
            let by = match above {
                Some(other) => Some(format!("the image {}", other.name())),
                None => image.is_claimed().then(|| "a guest, an import or an export".to_owned()),
            };
            if let Some(by) = by {
                return Err(ImageError::InUse { name: name.into(), by });
            }
            catalog.images.remove(name);
            // No other image takes its keys before its pages are dropped.
            catalog.coming.insert(name.into(), image.keys());
            image.keys()
        };
        forget();
        let _changes = self.changes.lock();
        self.drop_pages(keys);
        self.catalog.lock().coming.remove(name);
        Ok(())
    }

    /// Returns an image, which cannot be removed while the claim lives.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn claim(&self, name: &str) -> Result<Claim, ImageError> {
        self.catalog.lock().get(name).map(Claim::new)
    }

    /// Returns whether there is an image of that name.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.catalog.lock().images.contains_key(name)
    }

    /// Returns all images by name, with what they cost.
    #[must_use]
    pub fn list(&self) -> Vec<ImageInfo> {
        let images: Vec<_> = self.catalog.lock().images.values().cloned().collect();
        let info = |image: &Arc<Image>| ImageInfo {
            name: image.name().into(),
            base: image.base().map(|base| base.name().into()),
            size_bytes: image.pages() * PAGE as u64,
            own_pages: image.own_pages,
            working_set_pages: image.working_set_pages(),
            recorded: image.is_recorded(),
            machine_bytes: image.machine.filter(|of| !of.is_state()).map(Lengths::bytes),
            state_bytes: image.machine.filter(|of| of.is_state()).map(Lengths::bytes),
            state_xxh3: image.state_hash.map(|hash| format!("{hash:016x}")),
        };
        images.iter().map(info).collect()
    }

    fn drop_pages(&self, keys: Range<u64>) {
        let mut from = keys.start;
        while from < keys.end {
            let _open = self.open();
            let to = keys.end.min(from + DROPPED);
            self.store.invalidate_range(from..to);
            from = to;
        }
        let _open = self.open();
        self.store.compact();
    }
}

impl Catalog {
    fn get(&self, name: &str) -> Result<&Arc<Image>, ImageError> {
        self.images.get(name).ok_or_else(|| ImageError::Missing {
            name: name.into(),
            choices: self.images.keys().cloned().collect(),
        })
    }

    /// Claims the image that was given as a base, if one was.
    fn base(&self, name: Option<&str>) -> Result<Option<Claim>, ImageError> {
        name.map(|name| self.get(name).map(Claim::new)).transpose()
    }

    /// Returns the image itself, not another one of the same name.
    fn get_same(&self, image: &Arc<Image>) -> Result<&Arc<Image>, ImageError> {
        let found = self.get(image.name())?;
        let missing = || ImageError::Missing { name: image.name().into(), choices: Vec::new() };
        if Arc::ptr_eq(found, image) { Ok(found) } else { Err(missing()) }
    }

    /// Returns the keys that are taken, in their order.
    fn taken(&self) -> Vec<Range<u64>> {
        let images = self.images.values().map(|image| image.keys());
        let coming = self.coming.values().cloned();
        let starts: BTreeSet<_> = images.chain(coming).map(|keys| (keys.start, keys.end)).collect();
        starts.into_iter().map(|(start, end)| start..end).collect()
    }
}

fn read_state(file: &File) -> Result<Machine, ImageError> {
    Machine::of_state(file)?.ok_or(ImageError::State)
}

/// Checks that a name can be that of an image and of a file.
///
/// # Errors
/// It cannot.
pub fn check_name(name: &str) -> Result<(), ImageError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let begins = !name.starts_with(['.', '-']);
    match begins && (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(allowed) {
        true => Ok(()),
        false => Err(ImageError::Name(name.into())),
    }
}
