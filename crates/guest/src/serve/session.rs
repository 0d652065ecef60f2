//! A guest's thread: it waits for the guest's messages, and lets the core process them.

use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::descriptor::{Descriptor, Memory, kill, peer_pidfd};
use super::figures::{Figures, GuestState};
use super::journal::Messages;
use super::server::Server;
use crate::core::fault::{Fault, Next, Why};
use crate::core::guest::Guest;
use crate::images::{Claim, Gated};
use crate::sys::poll;

/// The first wait for a discard that is under way, and the longest.
const SOON: Duration = Duration::from_micros(20);
const SOON_MAX: Duration = Duration::from_millis(5);

/// Wait between two attempts at a call that fails for another reason, and between two checks
/// whether an address space still exists.
const LATER: Duration = Duration::from_secs(1);

/// How long the first guest of an image is recorded.
const RECORDED: Duration = Duration::from_secs(30);

/// What the front has to know of a guest.
pub(crate) enum Fate {
    /// It cannot be served, and waits.
    Held,
    /// It needs no server and no descriptor any longer.
    Ended,
}

/// Tells the front.
pub(crate) type Report = Box<dyn Fn(Fate) + Send>;

/// A guest that is to be served, or held because it cannot be.
pub(super) struct Session {
    pub(super) server: Arc<Server>,
    pub(super) figures: Arc<Figures>,
    pub(super) stream: UnixStream,
    pub(super) descriptor: Descriptor,
    pub(super) report: Report,
}

/// What serving a guest takes.
pub(super) struct Served {
    pub(super) image: Claim,
    pub(super) guest: Guest,
    pub(super) messages: Messages,
    /// An earlier server had it.
    pub(super) is_taken_over: bool,
}

/// What wakes a guest's thread.
#[derive(Clone, Copy, Debug)]
enum Source {
    Guest,
    Peer,
    End,
    Fill,
}

/// What was reported about a guest.
#[derive(Debug, Default)]
struct Reported {
    /// The fault that has waited long: since when, and where.
    late: Option<(u64, usize)>,
    stray: bool,
}

/// Why a wait for a guest ended.
#[derive(Clone, Copy, Debug, Default)]
struct Woken {
    hung_up: bool,
    ending: bool,
    fills: bool,
}

impl Session {
    /// Records and reports that the guest is not served, but held.
    pub(super) fn refuse(&self, told: &str) {
        let (who, image) = (self.figures.who(), self.figures.stats().image);
        self.server.hold(&self.figures);
        (self.report)(Fate::Held);
        let end = match self.server.options.kills_refused {
            false => "waits",
            true if kill(peer_pidfd(&self.stream).as_ref()) => "is killed",
            true => "waits, since this user may not kill it",
        };
        self.server.report(&format!("{who} of {image} is not served, and {end}: {told}"));
    }

    /// Serves the guest until its address space is gone or has all its pages; holds it if it cannot
    /// be served.
    pub(super) fn run(self, served: Option<Served>) {
        let (server, figures) = (Arc::clone(&self.server), Arc::clone(&self.figures));
        let is_over = match served {
            Some(served) => self.serve(served) || self.hold(),
            None => self.hold(),
        };
        // After this report, its image may be removed and descriptors counted.
        let Self { stream, descriptor, report, .. } = self;
        drop((stream, descriptor));
        server.ended(&figures);
        if is_over {
            report(Fate::Ended);
        }
    }

    /// Returns whether the guest no longer needs a server; otherwise it cannot be served.
    fn serve(&self, served: Served) -> bool {
        let Served { image, mut guest, messages, is_taken_over } = served;
        let records = self.server.options.records_first && !is_taken_over && image.begins();
        let pages = Gated { image: &image, until: records.then(|| Instant::now() + RECORDED) };
        let mut memory = Memory::new(&self.descriptor, &self.server.latencies, messages);
        if is_taken_over {
            let given_up = memory.given_up();
            guest.take_over(given_up.into_iter(), &mut memory);
        }
        let (mut soon, mut reported) = (SOON, Reported::default());
        let mut woken = Woken::default();
        loop {
            let now = memory.now();
            self.figures.look();
            let next = guest.step(&mut memory, &pages, now);
            memory.rest();
            self.figures.set(&guest);
            if guest.filled > 0 {
                let pages = std::mem::take(&mut guest.filled);
                guest.due = memory.now() + self.server.pace(pages).as_nanos() as u64;
            }
            let wait = match next {
                Next::Gone => return true,
                Next::Now if guest.is_paced(now) => {
                    Some(LATER.min(Duration::from_nanos(guest.due - now)))
                }
                Next::Now => Some(Duration::ZERO),
                Next::Soon => Some(soon),
                Next::Later => Some(LATER),
                Next::Idle if woken.hung_up || woken.ending => Some(LATER),
                Next::Idle => None,
            };
            soon = if next == Next::Soon { (soon * 2).min(SOON_MAX) } else { SOON };
            self.report(&image, &guest, now, &mut reported);
            if (woken.ending || woken.fills) && guest.is_complete() {
                self.descriptor.let_go(guest.regions());
                self.figures.say(GuestState::Released);
                return true;
            }
            if next == Next::Idle && woken.ending {
                // A page that could not be read may be readable now.
                guest.put_in_all();
            }
            let before = woken;
            woken = self.wait(wait, woken, true);
            if woken.ending && !before.ending {
                guest.put_in_all();
            }
            if woken.fills && !before.fills {
                guest.fill();
            }
            if woken.hung_up && self.descriptor.is_gone() {
                return true;
            }
        }
    }

    /// Keeps the descriptor of a guest that cannot be served until its address space is gone: the
    /// guest waits, and must not read zeros (G4). Returns whether the address space is gone.
    fn hold(&self) -> bool {
        let mut woken = Woken::default();
        while !woken.ending && !self.descriptor.is_gone() {
            let wait = woken.hung_up.then_some(LATER);
            woken = self.wait(wait, woken, false);
        }
        !woken.ending
    }

    /// Waits until the guest sends a message or disconnects, or the server ends.
    fn wait(&self, wait: Option<Duration>, before: Woken, listens: bool) -> Woken {
        let (mut names, mut fds) = (Vec::with_capacity(3), Vec::with_capacity(3));
        let mut add = |name, fd, flags| {
            names.push(name);
            fds.push(PollFd::from_borrowed_fd(fd, flags));
        };
        if listens {
            add(Source::Guest, self.descriptor.as_fd(), PollFlags::IN);
        }
        if !before.hung_up {
            // Its end alone, which is always said: nothing comes by it (apart/T3).
            add(Source::Peer, self.stream.as_fd(), PollFlags::empty());
        }
        if !before.ending {
            add(Source::End, self.server.ending(), PollFlags::IN);
        }
        if let Some(fill) = self.figures.filling().filter(|_| listens && !before.fills) {
            add(Source::Fill, fill, PollFlags::IN);
        }
        if poll(&mut fds, wait).is_err() {
            return before;
        }
        let mut woken = before;
        for (name, fd) in names.into_iter().zip(fds) {
            match (name, fd.revents()) {
                (_, flags) if flags.is_empty() => {}
                (Source::Peer, _) => woken.hung_up = true,
                (Source::End, _) => woken.ending = true,
                (Source::Fill, _) => woken.fills = true,
                // The other side has made reads wait, so a poll fails.
                (_, flags) if flags.contains(PollFlags::ERR) => {
                    self.descriptor.no_waiting();
                    std::thread::sleep(SOON);
                }
                _ => {}
            }
        }
        woken
    }

    /// Reports a fault that has waited long, and one that gets no answer; each once.
    fn report(&self, image: &Claim, guest: &Guest, now: u64, reported: &mut Reported) {
        if let Some(at) = guest.first_stray.filter(|_| !reported.stray) {
            reported.stray = true;
            self.server.report(&format!(
                "{} touched {at:#x}, which is in none of the regions that it named, and waits for \
                 ever: memory that was plugged in later has no pages in {}",
                self.figures.who(),
                image.name(),
            ));
        }
        let patience = self.server.options.patience.as_nanos() as u64;
        let late = guest.oldest().filter(|fault| now.saturating_sub(fault.since) >= patience);
        self.figures.late(late.is_some());
        let Some(fault) = late else { return };
        let this = Some((fault.since, fault.at));
        if std::mem::replace(&mut reported.late, this) != this {
            let Fault { at, page, .. } = fault;
            let why = match &fault.why {
                Why::New => "it has just come".to_owned(),
                Why::Discard => "the guest keeps discarding memory".to_owned(),
                Why::Load(error) => format!("the page cannot be read: {error}"),
                Why::Kernel(error) => format!("the kernel refuses it: {error}"),
            };
            self.server.report(&format!(
                "{} waits for page {page} of {} at {at:#x}: {why}",
                self.figures.who(),
                image.name(),
            ));
        }
    }
}
