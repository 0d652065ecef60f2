//! What a program asks of its memory itself: that pages leave now, or that they stay with it.

use std::sync::{Arc, mpsc};

use super::engine::{Engine, SETTLE};
use super::managed::{Managed, lock};
use super::pages::Page;
use super::ranges::{PAGE, Pages, Ranges, common};
use super::shared::PageOut;

impl Engine {
    /// Has pages leave, and waits until they are compressed.
    pub(super) fn page_out(&self, managed: &Arc<Managed>, pages: Pages) {
        if managed.access().is_none() {
            return self.want(managed);
        }
        let (done, compressed) = mpsc::channel();
        let managed = Arc::clone(managed);
        lock(&self.shared.page_outs).push_back(PageOut { managed, pages, done });
        self.shared.call_evictor();
        // An error says that nothing can leave.
        let _ = compressed.recv();
    }

    /// Puts back all that left a range, and leaves it open from now on: the program answers for
    /// its missing pages itself.
    pub(super) fn give_back(&self, managed: &Managed, pages: &Pages) {
        lock(&managed.own).insert(pages.clone());
        let Some(access) = managed.access() else {
            return;
        };
        let mut space = managed.lock();
        if !space.wait(SETTLE, |space| !space.is_busy(std::slice::from_ref(pages))) {
            return self.shared.tracing.end("pages of the program do not settle".to_owned());
        }
        let mut closed = Ranges::default();
        space.closed().iter().for_each(|part| closed.insert(common(&part, pages)));
        let known = space.forget(pages);
        let mut buffer = vec![0; PAGE];
        for &(page, state) in &known {
            let found = match state {
                Page::Stored(key) => match self.shared.store.load(key.into(), &mut buffer) {
                    Ok(found) => found,
                    Err(error) => return self.shared.end_load(&error),
                },
                Page::Chance(slot) => {
                    let found = lock(&self.shared.chances).find(slot);
                    let found = found.map(|(batch, at)| buffer.copy_from_slice(batch.page(at)));
                    found.is_some()
                }
                _ => false,
            };
            if found {
                access.copy(page, &buffer);
            }
        }
        for part in closed.iter() {
            // It fails where nothing is mapped any more.
            let _ = access.unregister(&part);
            managed.add_open(part.len());
        }
        drop(space);
        self.shared.release(&known);
    }
}
