//! What a guest needs so that pages can leave: its files, keys for the pages, a seat in the room.

use std::ops::Range;
use std::sync::Arc;

use super::backing::Backing;
use super::room::{Room, Seat};
use crate::images::{Images, Keys};

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Away {
    images: Arc<Images>,
    pub(super) backing: Backing,
    pub(super) keys: Keys,
    pub(super) seat: Seat,
    /// Pages that are resident at the beginning.
    pub(super) present: Vec<Range<usize>>,
}

impl Away {
    /// Returns what the guest with this number needs, which has `pages` pages.
    pub(super) fn new(
        images: &Arc<Images>,
        room: &Arc<Room>,
        number: u64,
        backing: Backing,
        pages: u64,
    ) -> Result<Self, String> {
        let present = backing.present();
        let present = present.map_err(|error| format!("its memfd cannot be searched: {error}"))?;
        let seat = Seat::new(room, number).map_err(|error| error.to_string())?;
        let keys = images.take_keys(pages).ok_or("there is no room for pages that would leave")?;
        Ok(Self { images: Arc::clone(images), backing, keys, seat, present })
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        let _open = self.images.open();
        self.keys.give_back();
    }
}
