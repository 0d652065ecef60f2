//! Spaces that have lost pages; they should soon be gone.

use std::io;
use std::time::{Duration, Instant};

use crate::link::SpaceId;
use crate::shared::Shared;
use crate::spaces::managed::{Managed, lock};
use crate::sys::proc;

/// How long such a space may take to end by itself. On a busy machine the report of its end may
/// take long.
const PATIENCE: Duration = Duration::from_secs(2);

/// A space that has lost pages.
struct Lost {
    space: SpaceId,
    since: Instant,
    /// How that was noticed.
    error: String,
}

/// The spaces that have lost pages.
#[derive(Default)]
pub(super) struct LostSpaces(Vec<Lost>);

impl LostSpaces {
    /// Records that a space has lost pages. Normally the space is gone, and the tracer is about to
    /// report that. Until then no page is filled in there.
    pub(super) fn add(&mut self, managed: &Managed, error: &io::Error) {
        managed.die();
        let (space, since) = (managed.id, Instant::now());
        self.0.push(Lost { space, since, error: error.to_string() });
    }

    /// Ends those that continue to run.
    pub(super) fn check(&mut self, shared: &Shared) {
        self.0.retain(|Lost { space, since, error }| {
            let Some(managed) = shared.books.find(*space) else { return false };
            let goes_on = || lock(&managed.tasks).clone().into_iter().any(proc::lives);
            let ends = since.elapsed() > PATIENCE && goes_on();
            if ends {
                let message = format!("it lost pages that were on their way out: {error}");
                shared.tracing.end_space(*space, message);
            }
            !ends
        });
    }
}
