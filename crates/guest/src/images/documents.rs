//! The documents of a machine in the store: behind the pages and the working set of its image.

use zfold_store::StoreError;
use zfold_uffd::page::PAGE;

use super::Images;
use super::error::ImageError;
use super::image::Image;
use super::machine::{Lengths, Machine};

impl Image {
    /// Stores the documents, whose lengths the image has.
    pub(super) fn store_machine(&self, machine: &Machine) -> Result<(), StoreError> {
        let mut page = [0; PAGE];
        let pieces = [&machine.config, &machine.state].into_iter().flat_map(|all| all.chunks(PAGE));
        for (key, piece) in (self.machine_key()..).zip(pieces) {
            page.fill(0);
            page[..piece.len()].copy_from_slice(piece);
            self.gate.within(|| self.store.store(key, &page))?;
        }
        Ok(())
    }

    /// Returns the documents, if there are any.
    ///
    /// # Errors
    /// They cannot be read.
    pub(crate) fn machine(&self) -> Result<Option<Machine>, ImageError> {
        let Some(Lengths(config, state)) = self.machine else { return Ok(None) };
        let mut key = self.machine_key();
        let mut read = |bytes: u64| {
            let mut all = vec![0; (bytes as usize).next_multiple_of(PAGE)];
            for page in all.chunks_exact_mut(PAGE) {
                match self.gate.within(|| self.store.load(key, page)) {
                    Ok(true) => {}
                    // It could not be read when the images were saved.
                    Ok(false) => return Err(ImageError::Document(self.name().into())),
                    Err(source) => return Err(ImageError::Load { page: key, source }),
                }
                key += 1;
            }
            all.truncate(bytes as usize);
            Ok(all)
        };
        Ok(Some(Machine { config: read(config)?, state: read(state)? }))
    }
}

impl Images {
    /// Returns the state file that is kept with an image.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn state(&self, name: &str) -> Result<Vec<u8>, ImageError> {
        let image = self.claim(name)?;
        let machine = image.machine()?.filter(Machine::is_state);
        Ok(machine.ok_or_else(|| ImageError::NoState(name.into()))?.state)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use xxhash_rust::xxh3::xxh3_64;
    use zfold_store::CodecKind;

    use super::*;
    use crate::images::images_options;

    #[test]
    fn an_image_keeps_the_state_of_its_snapshot() {
        let images = || {
            let options = images_options(CodecKind::Lz4.into(), None);
            Images::new(&options).expect("a store")
        };
        let (first, again) = (images(), images());
        let (memory, state) = (tempfile::tempfile(), tempfile::tempfile());
        let (memory, state) = (memory.expect("a file"), state.expect("a file"));
        memory.set_len(9 << 12).expect("a length");
        let refused = first.import_with("no", &memory, None, Some(&state));
        assert!(matches!(refused, Err(ImageError::State)), "{refused:?}");
        state.write_all_at(b"processors", 0).expect("written");
        first.import_with("web", &memory, None, Some(&state)).expect("imported");
        first.import("plain", &memory, None).expect("imported");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("images");
        first.save_to(&path).expect("saved");
        again.load_from(&path).expect("loaded");
        let label = String::from_utf8(first.catalog.lock().label()).expect("text");
        assert!(label.contains(&format!(",[0,10],{}]", xxh3_64(b"processors"))), "{label}");
        let kept = Some(format!("{:016x}", xxh3_64(b"processors")));
        for images in [&first, &again] {
            assert_eq!(images.state("web").expect("kept"), b"processors");
            assert!(matches!(images.state("plain"), Err(ImageError::NoState(_))));
            let list = images.list();
            assert_eq!((list[0].state_bytes, list[1].state_bytes), (None, Some(10)));
            assert_eq!((&list[0].state_xxh3, &list[1].state_xxh3), (&None, &kept));
            assert_eq!(list[1].machine_bytes, None);
        }
        first.remove("web").expect("removed");
        assert_eq!(first.store().len(), 0);
    }
}
