//! The start of a guest: it gets a thread, which checks its message.
//!
//! The lock is between two threads that never use it at the same time: one hands the guest to its
//! thread, or keeps it if no thread can be started.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::thread::{self, Builder};
use std::time::Duration;

use zfold_store::pool::Lock;

use super::descriptor::{Descriptor, Unfit};
use super::figures::Lies;
use super::handshake::Offer;
use super::journal::{self, Journal};
use super::prompt;
use super::session::{Done, Served, Session};
use super::shared::Shared;
use crate::core::guest::Guest;
use crate::core::regions::{self, Region};
use crate::images::Claim;

/// Wait if the system has no thread.
const BREATH: Duration = Duration::from_millis(100);

/// Bytes of a guest's stack.
const STACK: usize = 256 << 10;

/// A guest that has connected, or that another server had.
pub(crate) struct Arrived {
    pub(crate) image: String,
    pub(crate) offer: Offer,
    /// Its number, if it has one.
    pub(crate) number: Option<u64>,
    pub(crate) journal: io::Result<File>,
    pub(crate) done: Done,
}

impl Arrived {
    /// Returns a new guest.
    pub(super) fn new(image: &str, offer: Offer) -> Self {
        let (image, journal) = (image.to_owned(), journal::create(b"").map(|(file, _)| file));
        Self { image, offer, number: None, journal, done: Box::new(|| {}) }
    }
}

/// Starts the thread of a guest.
pub(super) fn start(shared: &Arc<Shared>, arrived: Arrived) {
    let image = arrived.image.clone();
    let begun = begin(shared, arrived);
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
                shared.report(&format!("a guest of {image} waits for a thread: {error}"));
                thread::sleep(BREATH);
            }
        }
    }
}

/// A guest with its place, its claim and its number. It is in the list already, so that the end of
/// the server waits for it.
struct Begun {
    claim: Result<Claim, String>,
    text: Vec<u8>,
    journal: io::Result<File>,
    session: Session,
}

fn begin(shared: &Arc<Shared>, arrived: Arrived) -> Begun {
    let Arrived { image, offer, number, journal, done } = arrived;
    let Offer { stream, text, descriptor, pid } = offer;
    let claim = shared.images.claim(&image).map_err(|error| error.to_string());
    let (figures, shared) = (shared.enter(&image, number, pid), Arc::clone(shared));
    let session = Session { shared, figures, stream, descriptor, done };
    Begun { claim, text, journal, session }
}

impl Begun {
    /// Serves the guest if its image exists and its regions are right, otherwise holds it. The peer
    /// can delay the check of its regions for as long as it likes.
    fn run(self) {
        let Self { claim, text, journal, session } = self;
        let checked = claim.and_then(|claim| {
            let regions = check(&session.descriptor, &text, &claim)?;
            let units = regions.last().map_or(0, |last| last.units().end);
            let journal = journal.and_then(|file| open(&file, units));
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

fn check(descriptor: &Descriptor, text: &[u8], image: &Claim) -> Result<Vec<Region>, String> {
    let told = regions::parse(text, image.pages()).map_err(|error| error.to_string())?;
    match descriptor.check(&told) {
        Ok(()) => Ok(told),
        Err(Unfit::Unregistered(error)) => {
            Err(format!("its regions are not registered with its userfaultfd ({error})"))
        }
        Err(_) => Err("it is gone".to_owned()),
    }
}

fn open(file: &File, units: u64) -> io::Result<Journal> {
    let (_, from) = journal::about(file)?;
    Journal::open(file, from, units)
}
