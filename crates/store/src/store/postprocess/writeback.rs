//! Writeback: pages leave memory for the backing file, a batch in one write.

use std::sync::atomic::Ordering;

use super::choose::{Candidate, Scan};
use super::rounds::{Processed, Processing};
use super::selection::Selection;
use crate::entry::{Entry, Flag, Place, State};
use crate::error::ProcessError;
use crate::pages::backed::{Backed, checksum};
use crate::store::Store;

/// A page of a batch, and where its bytes are.
#[derive(Clone, Copy, Debug)]
struct Chosen {
    candidate: Candidate,
    /// Offset and length in the batch's buffer; the offset is a whole number of units.
    offset: usize,
    len: usize,
}

impl Store {
    /// Writes pages to the backing file, at most `max_pages`, and frees their memory. Pages that
    /// are used meanwhile stay.
    ///
    /// # Errors
    /// [`ProcessError`] if nothing could be written or the file failed; pages written before stay
    /// written, all others stay in memory.
    pub fn writeback(
        &self,
        selection: &Selection,
        max_pages: Option<u64>,
    ) -> Result<Processed, ProcessError> {
        let backed = self.pages.backed.as_ref().ok_or(ProcessError::NoBacking)?;
        let work = &mut *self.begin_processing();
        let mut scan = Scan::new(selection, self.slots(), work.hand);
        let mut done = Processed::default();
        let mut left = max_pages.unwrap_or(u64::MAX);
        while left > 0 {
            let batch = u64::from(self.tuning.get().writeback_batch_pages).min(left);
            let budget = self.tuning.take_budget(batch);
            if budget == 0 {
                return if done.pages > 0 { Ok(done) } else { Err(ProcessError::WritebackLimit) };
            }
            let chosen = self.choose_batch(backed, &mut scan, budget as usize, work);
            let before = done.pages;
            let written = self.write_batch(backed, &chosen, work, &mut done);
            // Relaxed: a gauge.
            self.processing_bytes.store(work.bytes(), Ordering::Relaxed);
            self.tuning.return_budget(budget - (done.pages - before));
            if *selection == Selection::Lru
                && let Some(last) = chosen.last()
            {
                work.hand = last.candidate.key + 1;
            }
            written?;
            left = left.saturating_sub(chosen.len() as u64);
            if (chosen.len() as u64) < budget && !work.is_full() {
                break;
            }
        }
        Ok(done)
    }

    fn choose_batch(
        &self,
        backed: &Backed,
        scan: &mut Scan<'_>,
        pages: usize,
        work: &mut Processing,
    ) -> Vec<Chosen> {
        let mut chosen: Vec<Chosen> = Vec::with_capacity(pages);
        work.buffer.clear();
        while chosen.len() < pages
            && !work.is_full()
            && let Some(key) = scan.next(self)
        {
            // The clock hand comes round again, and ranges of keys may overlap; but a page is
            // chosen once in a batch (P1).
            if chosen.iter().any(|page| page.candidate.key == key) {
                continue;
            }
            let offset = work.buffer.len();
            let Some(candidate) = self.choose(key, scan.selection, &mut work.buffer) else {
                continue;
            };
            let len = work.buffer.len() - offset;
            chosen.push(Chosen { candidate, offset, len });
            let whole = work.buffer.len().next_multiple_of(backed.unit_bytes());
            work.buffer.resize(whole, 0);
        }
        chosen
    }

    /// Writes what was chosen, in as few writes as there are free runs, swaps the entries and
    /// counts them in `done`, also those before an error.
    fn write_batch(
        &self,
        backed: &Backed,
        chosen: &[Chosen],
        work: &mut Processing,
        done: &mut Processed,
    ) -> Result<(), ProcessError> {
        let Processing { buffer, write, .. } = work;
        let mut rest = chosen;
        while let Some(first) = rest.first() {
            let end = |page: &Chosen| page.offset - first.offset + page.len;
            let last = rest.last().expect("not empty");
            let run = backed.allocate(backed.units(end(last)));
            let fits = |units: u32| {
                rest.iter().take_while(|page| backed.units(end(page)) <= units).count()
            };
            let (unit, units) = run.unwrap_or((0, 0));
            let (now, later) = rest.split_at(fits(units));
            let used = now.last().map_or(0, |page| backed.units(end(page)));
            if used < units {
                backed.free(unit + used, units - used);
            }
            if now.is_empty() {
                self.give_up(rest);
                return Err(ProcessError::BackingFull);
            }
            let bytes = &buffer[first.offset..first.offset + end(now.last().expect("not empty"))];
            if let Err(error) = backed.write(unit, bytes, write) {
                backed.free(unit, used);
                self.give_up(rest);
                self.share().backing_failed_writes_total.add(now.len() as u64);
                return Err(ProcessError::Backing(error));
            }
            for page in now {
                let at = unit + backed.units(page.offset - first.offset);
                let bytes = &buffer[page.offset..page.offset + page.len];
                if self.swap_written(backed, page, at, bytes) {
                    done.pages += 1;
                    done.bytes_before += page.candidate.entry.state.len() as u64;
                }
            }
            rest = later;
        }
        Ok(())
    }

    /// Lets a slot say where its page was written, if it still is that page.
    fn swap_written(&self, backed: &Backed, page: &Chosen, unit: u32, bytes: &[u8]) -> bool {
        let key = page.candidate.key;
        let Some(slot) = self.still_marked(&page.candidate) else {
            backed.free(unit, backed.units(page.len));
            return false;
        };
        let place = Place { unit, checksum: checksum(key, bytes) };
        // Marks and times are those of a page in memory.
        let of = page.candidate.entry.state;
        let form = State::new(of.kind(), of.len(), of.priority()).with(Flag::Backed);
        let state = form.set(Flag::Incompressible, of.has(Flag::Incompressible));
        let share = self.share();
        self.swap_form(slot, Entry { state, value: place.value() }, share);
        share.backing_writes_total.add(1);
        true
    }

    fn give_up(&self, chosen: &[Chosen]) {
        chosen.iter().for_each(|page| self.unmark(&page.candidate, |state| state));
    }
}
