//! A guest, or a machine that gets pages on demand, as the front keeps it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::fs::tell;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::channel::{Channel, ToServer};
use crate::serve::descriptor::{Descriptor, kill, peer, peer_pidfd};
use crate::serve::handshake::Offer;
use crate::serve::journal;
use crate::serve::session::Report;
use crate::serve::start::Arrived;
use crate::sys::ready;

/// The first line of a guest's journal; after it comes the guest's message as received.
#[derive(Debug, Deserialize, Serialize)]
struct About {
    number: u64,
    image: String,
    pid: Option<i32>,
}

/// What is kept of it.
#[derive(Debug)]
enum Things {
    /// A guest. Its journal begins at `from` in its file.
    Guest { descriptor: Descriptor, journal: File, from: u64, stream: UnixStream },
    /// A machine that gets pages on demand: its connection, and the rest, its progress first.
    Machine { stream: UnixStream, rest: Vec<OwnedFd> },
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Kept {
    about: About,
    things: Things,
    pidfd: Option<OwnedFd>,
    /// The current server has it.
    pub(super) is_sent: bool,
    /// Looks that the server had taken, and the time of the last change.
    looks: (Option<u64>, Instant),
    is_reported: bool,
    /// The current server cannot serve it, and has said so.
    pub(super) is_held: bool,
}

impl Kept {
    fn of(about: About, things: Things) -> Self {
        let (Things::Guest { stream, .. } | Things::Machine { stream, .. }) = &things;
        let pidfd = peer_pidfd(stream);
        let looks = (None, Instant::now());
        Self { about, things, pidfd, is_sent: false, looks, is_reported: false, is_held: false }
    }

    /// Keeps a guest whose message is complete.
    ///
    /// # Errors
    /// There is no number for a descriptor, or no memory; the guest is unchanged.
    pub(super) fn new(number: u64, image: &str, offer: Offer) -> Result<Self, (io::Error, Offer)> {
        let about = About { number, image: image.to_owned(), pid: offer.pid };
        let mut text = serde_json::to_vec(&about).expect("names and numbers are JSON");
        // No such document has a line break.
        text.push(b'\n');
        text.extend_from_slice(&offer.text);
        let (journal, from) = match journal::create(&text) {
            Ok(made) => made,
            Err(error) => return Err((error, offer)),
        };
        let Offer { descriptor, stream, .. } = offer;
        Ok(Self::of(about, Things::Guest { descriptor, journal, from, stream }))
    }

    /// Keeps a machine that the current server has, by what the server sent; nothing if that is not
    /// a machine.
    pub(super) fn machine(number: u64, image: String, fds: Vec<OwnedFd>) -> Option<Self> {
        let mut fds = fds.into_iter();
        let stream = UnixStream::from(fds.next()?);
        let about = About { number, image, pid: peer(&stream) };
        let things = Things::Machine { stream, rest: fds.collect() };
        Some(Self { is_sent: true, ..Self::of(about, things) })
    }

    /// Hands a copy of it to a server.
    pub(super) fn send(&mut self, server: &Channel) -> Result<(), Errno> {
        let number = self.about.number;
        match &self.things {
            Things::Guest { descriptor, journal, stream, .. } => {
                let fds = [descriptor.as_fd(), journal.as_fd(), stream.as_fd()];
                server.try_send(&ToServer::Guest(number), &fds)?;
            }
            Things::Machine { stream, rest } => {
                let fds = std::iter::once(stream.as_fd());
                let fds: Vec<_> = fds.chain(rest.iter().map(|fd| fd.as_fd())).collect();
                server.try_send(&ToServer::Machine(number, self.about.image.clone()), &fds)?;
            }
        }
        (self.is_sent, self.is_held, self.is_reported) = (true, false, false);
        self.looks = (None, Instant::now());
        Ok(())
    }

    /// Returns the guest as text for people.
    pub(super) fn who(&self) -> String {
        let About { number, image, pid } = &self.about;
        match pid {
            Some(pid) => format!("guest {number} of {image} (process {pid})"),
            None => format!("guest {number} of {image}"),
        }
    }

    /// Returns the image of which it has a place; machines have none.
    pub(super) fn place(&self) -> Option<String> {
        matches!(self.things, Things::Guest { .. }).then(|| self.about.image.clone())
    }

    /// Returns whether its address space is gone, or its connection has ended.
    pub(super) fn is_gone(&self) -> bool {
        match &self.things {
            Things::Guest { descriptor, .. } => descriptor.is_gone(),
            Things::Machine { stream, .. } => ready(stream).contains(PollFlags::HUP),
        }
    }

    /// Ends it.
    pub(super) fn kill(&self) -> bool {
        kill(self.pidfd.as_ref())
    }

    /// Returns, once, whether its messages have been unread for `patience`, or the server has been
    /// busy with it for so long.
    pub(super) fn is_unheard(&mut self, patience: Duration) -> bool {
        let (looks, said) = match &self.things {
            Things::Guest { descriptor, journal, from, .. } => {
                (journal::looks(journal, *from), ready(descriptor))
            }
            Things::Machine { stream, rest } => {
                // Answers, each of which is whole.
                let answers = rest.first().and_then(|progress| tell(progress).ok());
                (answers.map(|answers| answers * 2), ready(stream))
            }
        };
        // An odd number: a server is looking, and has not finished.
        let is_busy = looks.is_some_and(|looks| looks % 2 == 1);
        if looks != self.looks.0 || !(said.contains(PollFlags::IN) || is_busy) {
            (self.looks, self.is_reported) = ((looks, Instant::now()), false);
        }
        let is_late = !self.is_held && self.looks.1.elapsed() >= patience;
        is_late && !std::mem::replace(&mut self.is_reported, is_late)
    }
}

/// Returns the guest that a front has handed over.
pub(super) fn arrived(fds: Vec<OwnedFd>, report: Report) -> io::Result<Arrived> {
    let fds = <[OwnedFd; 3]>::try_from(fds);
    let [fd, journal, stream] = fds.map_err(|_| io::ErrorKind::InvalidData)?;
    let journal = File::from(journal);
    let (text, _) = journal::about(&journal)?;
    let end = text.iter().position(|&byte| byte == b'\n').ok_or(io::ErrorKind::InvalidData)?;
    let About { number, image, pid } = serde_json::from_slice(&text[..end])?;
    let text = text[end + 1..].to_vec();
    let descriptor = Descriptor::new(fd).map_err(|_| io::ErrorKind::InvalidData)?;
    let offer = Offer { stream: stream.into(), text, descriptor, pid };
    Ok(Arrived { image, offer, number, journal, report })
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, Write as _};
    use std::thread;

    use super::*;

    #[test]
    fn a_machine_whose_requests_get_no_answers_is_unheard() {
        const PATIENCE: Duration = Duration::from_millis(20);
        let (stream, mut vmm) = UnixStream::pair().expect("a pair");
        let mut progress = tempfile::tempfile().expect("a file");
        let of_front = progress.try_clone().expect("a descriptor");
        let fds = vec![stream.into(), of_front.into()];
        let mut kept = Kept::machine(1, "web".to_owned(), fds).expect("a machine");
        let mut is_unheard = || {
            kept.is_unheard(PATIENCE);
            thread::sleep(2 * PATIENCE);
            kept.is_unheard(PATIENCE)
        };
        assert!(!is_unheard(), "it asks for nothing");
        vmm.write_all(&[0]).expect("asked");
        assert!(is_unheard());
        assert!(!is_unheard(), "once");
        progress.seek_relative(1).expect("answered");
        assert!(is_unheard(), "the next one");
    }
}
