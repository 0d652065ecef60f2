//! The documents of a machine in the store: behind the pages and the working set of its image.

use zfold_store::StoreError;
use zfold_uffd::page::PAGE;

use super::Images;
use super::error::ImageError;
use super::gate::Gate;
use super::image::Image;
use super::machine::Machine;

impl Image {
    /// Stores the documents, whose lengths the image has.
    pub(super) fn store_machine(&self, machine: &Machine, gate: &Gate) -> Result<(), StoreError> {
        let mut page = [0; PAGE];
        let pieces = [&machine.config, &machine.state].into_iter().flat_map(|all| all.chunks(PAGE));
        for (key, piece) in (self.machine_key()..).zip(pieces) {
            page.fill(0);
            page[..piece.len()].copy_from_slice(piece);
            gate.within(|| self.store().store(key, &page))?;
        }
        Ok(())
    }
}

impl Images {
    /// Returns the documents of an image, if it is one of a machine.
    ///
    /// # Errors
    /// They cannot be read.
    pub(crate) fn machine(&self, image: &Image) -> Result<Option<Machine>, ImageError> {
        let Some(lengths) = image.machine() else { return Ok(None) };
        let mut key = image.machine_key();
        let [config, state] = lengths.each();
        let mut read = |bytes: u64| {
            let mut all = vec![0; (bytes as usize).next_multiple_of(PAGE)];
            for page in all.chunks_exact_mut(PAGE) {
                match self.gate.within(|| self.store.load(key, page)) {
                    Ok(true) => {}
                    // It could not be read when the images were saved.
                    Ok(false) => return Err(ImageError::Document(image.name().into())),
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
