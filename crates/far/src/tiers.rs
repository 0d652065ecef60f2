//! A near backing before the engine: written units go there, and to the engine when they are old.
//!
//! The near state has a lock of its own, above the log's, which is held neither while the near
//! backing or the engine works. So three things happen between:
//!
//! - Y1: a reader looks up a slot, lets the lock go, and reads. If by then the units no longer lie
//!   in that slot, it looks again: the bytes it read may belong to others.
//! - Y2: a move reads units and puts them. When the put is acknowledged, under both locks, those
//!   that have not changed since the move began lie there, and the others' copies are dead from the
//!   start (near/W4). Until then all of them lie here.
//! - Y3: a write that goes to the engine at once, because there is no room here or enough was
//!   written today, takes its units from here before it begins, so that no move places older ones.

use std::io;
use std::time::Instant;

use zfold_store::backing::AlignedBuffer;

use crate::far::Far;
use crate::here::Here;
use crate::log::Span;
use crate::map::UNIT;
use crate::near::Part;
use crate::twin::{Twin, broken};

/// Most units that a round moves: 32 MiB.
const ROUND_UNITS: u64 = (32 << 20) / UNIT as u64;

impl Far {
    /// Writes whole units here if they can lie here, and to the engine otherwise.
    pub(crate) fn write_here(&self, here: &Here, unit: u32, data: &[u8]) -> io::Result<()> {
        let span = Span { unit, len: (data.len() / UNIT) as u32 };
        let parts = here.near().begin_write(span, here.second());
        let Some(parts) = parts else {
            // Y3.
            here.near().remove(span);
            return self.send(unit, data);
        };
        // The engine's copies of these units are no longer needed.
        self.change(|log| log.discard(span));
        let written = here.write(span, &parts, data);
        here.near().end_write(span, written.is_ok());
        // A disk that is full, or ends, is one more reason to go elsewhere.
        written.or_else(|error| self.send(unit, data).map_err(|_| error))
    }

    /// Reads whole units from where they lie (Y1).
    pub(crate) fn read_here(&self, here: &Here, unit: u32, out: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < out.len() {
            let at = unit + (done / UNIT) as u32;
            let (run, place) = here.near().run(at, ((out.len() - done) / UNIT) as u32);
            let part = &mut out[done..done + run as usize * UNIT];
            let Some(place) = place else {
                self.fetch_all(at, part)?;
                done += part.len();
                continue;
            };
            here.read(place, part)?;
            if here.near().run(at, run) == (run, Some(place)) {
                done += part.len();
            }
        }
        Ok(())
    }

    /// Moves what is old at `now` to the engine, a bounded part of it; returns whether there may be
    /// more that can go at once.
    pub(crate) fn move_old(&self, now: Instant) -> bool {
        let Some(here) = &self.here else { return false };
        here.tick(now);
        let (begun, mut moved) = (Instant::now(), 0);
        while !self.link.absent() && moved < ROUND_UNITS && begun.elapsed() < self.options.renew {
            if !self.log().has_room() {
                return false;
            }
            let most = self.log().object_units();
            let parts = here.near().begin_move(here.second(), here.after(), most);
            if parts.is_empty() {
                return false;
            }
            let units = self.move_parts(here, &parts);
            // Nothing went: either all has changed, or it cannot be done now.
            here.near().end_move(false);
            let Some(units) = units else { return false };
            moved += units.max(1);
        }
        !self.link.absent()
    }

    /// Moves parts (Y2); returns how many units went. `None` if the near backing or the engine has
    /// failed: the link counts the latter's failures.
    fn move_parts(&self, here: &Here, parts: &[Part]) -> Option<u64> {
        let units: u32 = parts.iter().map(|part| part.span.len).sum();
        let mut plain = AlignedBuffer::new(units as usize * UNIT);
        let mut start = 0;
        for part in parts {
            let end = start + part.span.len as usize * UNIT;
            here.read(part.at, &mut plain[start..end]).ok()?;
            start = end;
        }
        if broken(Twin::LeavesEarly) {
            here.near().end_move(true);
        }
        self.wait_for_turn(plain.len());
        let number =
            self.put(&plain, self.until()).inspect_err(|_| self.link.set_absent(true)).ok()?;
        let spans: Box<[Span]> = parts.iter().map(|part| part.span).collect();
        let mut near = here.near();
        let placed = self.change(|log| log.publish_some(number, spans, |unit| near.counts(unit)));
        // A log without room keeps all of it here.
        let moved = near.end_move(placed.is_ok());
        self.link.count_moved(moved * UNIT as u64);
        Some(moved)
    }
}
