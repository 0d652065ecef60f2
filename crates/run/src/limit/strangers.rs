//! A thread for looks at all processes that are rare and may take long: for memory that cannot
//! leave ([`looks`](super::looks)), and for untraced children of traced processes.
//!
//! Those were cloned so that no tracer follows (`CLONE_UNTRACED`). The kernel does not report them,
//! so they are searched for.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::limit::looks::Looks;
use crate::shared::Shared;
use crate::spaces::managed::lock;
use crate::sys::proc::{self, Status};

/// Time between two searches. A child that two of them find is reported: one found once may be
/// about to be traced.
const LOOKS: Duration = Duration::from_millis(300);

/// A pause is at least this many times as long as the search before it.
const REST: u32 = 100;

/// Why such a process is not managed.
const REASON: &str = "it was cloned untraced (CLONE_UNTRACED), as all that it starts; what it has \
                      does not count against the limit";

/// Looks until the memory side ends.
pub(crate) fn look(shared: &Arc<Shared>) {
    let (mut seen, mut told) = (HashSet::new(), HashSet::new());
    let (mut looks, mut due) = (Looks::default(), Instant::now() + LOOKS);
    loop {
        let next = due.min(looks.due());
        if shared.strangers.wait(next.saturating_duration_since(Instant::now())) {
            return;
        }
        looks.look(shared);
        let began = Instant::now();
        if began < due {
            continue;
        }
        let now = strangers(shared);
        for &pid in now.intersection(&seen) {
            if told.insert(pid) {
                shared.books.does_without(pid, REASON.to_owned());
                shared.tracing.tell();
            }
        }
        // Numbers are reused.
        told.retain(|pid| now.contains(pid));
        seen = now;
        due = Instant::now() + LOOKS.max(began.elapsed() * REST);
    }
}

/// Returns the untraced children of all threads, and of this process for orphans.
fn strangers(shared: &Shared) -> HashSet<i32> {
    let spaces = shared.books.all();
    let tasks = spaces.iter().flat_map(|managed| lock(&managed.tasks).clone());
    let own = proc::threads(std::process::id() as i32).unwrap_or_default();
    // The program is traced only when it gets a processor, on a busy machine after many looks.
    let orphans =
        own.into_iter().flat_map(proc::children).filter(|&pid| !proc::is_this_program(pid));
    tasks.flat_map(proc::children).chain(orphans).filter(|&pid| is_untraced(pid)).collect()
}

fn is_untraced(pid: i32) -> bool {
    let Ok(status) = Status::of(pid) else { return false };
    let has_ended = status.field("State").is_none_or(|state| state.starts_with(['Z', 'X']));
    !has_ended && status.number("TracerPid") == Some(0)
}
