//! What is left of a run when the program has ended because the front was told to end (F6).
//!
//! The manager learns of both in either order: the front reports the signal, or the manager gets it
//! as well, as one of the group, and the tracer reports the end.

use signal_hook::consts::SIGTERM;
use zfold_pool::Lock;
use zfold_run::{Control, Exit};

/// What is known so far.
#[derive(Debug, Default)]
struct Known {
    was_told: bool,
    has_ended: bool,
    control: Option<Control>,
}

/// Ends what is left, once.
#[derive(Debug, Default)]
pub(super) struct Rest(Lock<Known>);

impl Rest {
    /// There is a run to end.
    pub(super) fn began(&self, control: Control) {
        self.note(|known| known.control = Some(control));
    }

    /// The front was sent this signal, or its group was.
    pub(super) fn saw_signal(&self, signal: i32) {
        self.note(|known| known.was_told |= signal == SIGTERM);
    }

    /// The program has ended.
    pub(super) fn ended(&self, exit: Exit) {
        self.note(|known| known.has_ended |= exit == Exit::Signal(SIGTERM));
    }

    fn note(&self, what: impl FnOnce(&mut Known)) {
        let mut known = self.0.lock();
        what(&mut known);
        if known.was_told
            && known.has_ended
            && let Some(control) = known.control.take()
        {
            control.end_rest();
        }
    }
}
