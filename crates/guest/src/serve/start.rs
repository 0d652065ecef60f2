//! The start of a guest: it gets a thread, which checks its message.
//!
//! The lock is between two threads that never use it at the same time: one hands the guest to its
//! thread, or keeps it if no thread can be started.

use std::fs::File;
use std::sync::Arc;
use std::thread::{self, Builder};
use std::time::Duration;

use zfold_store::pool::Lock;

use super::figures::Lies;
use super::handshake::Offer;
use super::journal::Journal;
use super::prompt;
use super::server::Server;
use super::session::{Report, Served, Session};
use crate::core::guest::Guest;
use crate::core::regions;
use crate::images::Claim;

/// Wait if the system has no thread.
const BREATH: Duration = Duration::from_millis(100);

/// Bytes of a guest's stack.
const STACK: usize = 256 << 10;

/// A guest that a front has, or that another server had.
pub(crate) struct Arrived {
    pub(crate) image: String,
    pub(crate) offer: Offer,
    pub(crate) number: u64,
    pub(crate) journal: File,
    pub(crate) report: Report,
}

/// Starts the thread of a guest that a front accepted, or that another server had.
pub(crate) fn start(server: &Arc<Server>, arrived: Arrived) {
    let Arrived { image, offer, number, journal, report } = arrived;
    let Offer { stream, text, descriptor, pid } = offer;
    let claim = server.images.claim(&image).map_err(|error| error.to_string());
    // It is in the list from here on, so the end of the server waits for it.
    let (figures, own) = (server.enter(&image, number, pid), Arc::clone(server));
    let session = Session { server: own, figures, stream, descriptor, report };
    let begun = Begun { claim, text, journal, session };
    // If no thread can be started, the guest waits: its descriptor must not be closed.
    let handed = Arc::new(Lock::new(Some(begun)));
    loop {
        let taken = Arc::clone(&handed);
        let run = move || {
            prompt::be_prompt();
            let begun = taken.lock().take();
            if let Some(begun) = begun {
                begun.run();
            }
        };
        let thread = Builder::new().name("zfold-guest".to_owned()).stack_size(STACK).spawn(run);
        match thread {
            Ok(_) => return,
            Err(error) => {
                server.report(&format!("a guest of {image} waits for a thread: {error}"));
                thread::sleep(BREATH);
            }
        }
    }
}

/// A guest that has no thread yet.
struct Begun {
    claim: Result<Claim, String>,
    text: Vec<u8>,
    journal: File,
    session: Session,
}

impl Begun {
    /// Serves the guest if its image exists and its regions are right, otherwise holds it. The peer
    /// can delay the check of its regions for as long as it likes.
    fn run(self) {
        let Self { claim, text, journal, session } = self;
        let checked = claim.and_then(|claim| {
            let regions = regions::parse(&text, claim.pages())?;
            session.descriptor.check(&regions)?;
            let units = regions.last().map_or(0, |last| last.units().end);
            let journal = Journal::open(&journal, units);
            let journal = journal.map_err(|error| format!("there is no journal of it: {error}"))?;
            let (settled, image) = (journal.settled.clone(), Arc::clone(claim.image()));
            session.figures.lies(Lies { regions: regions.clone(), settled, image });
            let guest = Guest::new(regions, Box::new(journal.settled));
            let (messages, is_taken_over) = (journal.messages, journal.is_begun);
            Ok(Served { image: claim, guest, messages, is_taken_over })
        });
        let served = checked.map_err(|told| session.refuse(&told)).ok();
        session.run(served);
    }
}
