//! Broken twins: what the simulation must find. They exist in tests only.

use std::sync::Mutex;

use crate::far::Far;
use crate::link::{Failure, lock};
use crate::log::Piece;

/// A step that is done wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Twin {
    /// The cleaner deletes what it has copied before the copy is acknowledged (cleaner/C2).
    DeletesEarly,
    /// The log is told where the cleaner's copy lies before that is acknowledged (far/H1).
    MapsEarly,
    /// The cleaner's copy counts also for units that have changed meanwhile (log/L6).
    MovesBlindly,
    /// A number whose put failed is used again (seal/A2, far/H1).
    ReusesNumbers,
    /// What comes is taken without looking at its tag (seal/A3).
    OpensAnything,
    /// A reader whose object is gone does not look where the unit lies now (far/H2).
    NeverLooksAgain,
    /// What was read ahead and does not open is not asked for again (ahead/Q3).
    BelievesPieces,
    /// What is sent because it is old counts also if it has changed meanwhile (near/W4).
    MovesChanged,
    /// It is forgotten here before the engine has acknowledged it (tiers/Y2).
    LeavesEarly,
}

/// What a twin does, if it is one.
#[derive(Debug, Default)]
pub(crate) struct Twins {
    broken: Option<Twin>,
    spare: Mutex<Option<u64>>,
}

impl Far {
    /// Breaks a step.
    pub(crate) fn break_step(&mut self, twin: Twin) {
        self.twins.broken = Some(twin);
        self.sealer.blind = twin == Twin::OpensAnything;
        self.log().blind = twin == Twin::MovesBlindly;
        if let Some(here) = &self.here {
            here.near().blind = twin == Twin::MovesChanged;
        }
    }

    pub(crate) fn is(&self, twin: Twin) -> bool {
        self.twins.broken == Some(twin)
    }

    /// Returns the number of the last put that failed, instead of a new one.
    pub(crate) fn number_of(&self, new: u64) -> u64 {
        let spare = lock(&self.twins.spare).take();
        spare.filter(|_| self.is(Twin::ReusesNumbers)).unwrap_or(new)
    }

    /// Keeps the number of a put that failed for the next one.
    pub(crate) fn put_failed(&self, number: u64) {
        *lock(&self.twins.spare) = Some(number);
    }

    /// Does what must wait for the acknowledgement of the copy of `kept`.
    pub(crate) fn rewrite_early(&self, kept: &[Piece], plain: &[u8]) -> Result<(), Failure> {
        if self.is(Twin::DeletesEarly) {
            let numbers: Vec<u64> = kept.iter().map(|piece| piece.spot.number).collect();
            let _ = self.link.delete(&numbers, self.until());
        }
        if self.is(Twin::MapsEarly) {
            let number = self.log().begin();
            let _ = self.log().relocate(number, kept);
            let mut sealed = Vec::new();
            self.sealer.seal(number, 0, plain, &mut sealed);
            self.link.put(number, &sealed, self.until())?;
        }
        Ok(())
    }
}
