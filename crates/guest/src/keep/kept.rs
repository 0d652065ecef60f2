//! A guest as the front keeps it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use super::channel::{Channel, ToServer};
use crate::serve::descriptor::{Descriptor, peer_pidfd};
use crate::serve::handshake::Offer;
use crate::serve::journal;
use crate::serve::session::Done;
use crate::serve::start::Arrived;

/// The first line of a guest's journal; after it comes the guest's message as received.
#[derive(Debug, Deserialize, Serialize)]
struct About {
    number: u64,
    image: String,
    pid: Option<i32>,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Kept {
    about: About,
    descriptor: Descriptor,
    journal: File,
    /// Where the journal begins in its file.
    from: u64,
    stream: UnixStream,
    pidfd: Option<OwnedFd>,
    /// The current server has it.
    pub(super) is_sent: bool,
    /// Looks that the server had taken, and the time of the last change.
    looks: (Option<u64>, Instant),
    is_reported: bool,
}

impl Kept {
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
        let pidfd = peer_pidfd(&offer.stream);
        let Offer { descriptor, stream, .. } = offer;
        let looks = (None, Instant::now());
        let (is_sent, is_reported) = (false, false);
        Ok(Self { about, descriptor, journal, from, stream, pidfd, is_sent, looks, is_reported })
    }

    /// Hands a copy of it to a server.
    pub(super) fn send(&mut self, server: &Channel) -> Result<(), Errno> {
        let fds = [self.descriptor.as_fd(), self.journal.as_fd(), self.stream.as_fd()];
        server.try_send(&ToServer::Guest(self.about.number), &fds)?;
        (self.is_sent, self.looks, self.is_reported) = (true, (None, Instant::now()), false);
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

    /// Returns its image.
    pub(super) fn image(&self) -> &str {
        &self.about.image
    }

    /// Returns whether its address space is gone.
    pub(super) fn is_gone(&self) -> bool {
        self.descriptor.is_gone()
    }

    /// Ends it.
    pub(super) fn kill(&self) -> bool {
        let kill = |pidfd| pidfd_send_signal(pidfd, Signal::KILL);
        self.pidfd.as_ref().is_some_and(|pidfd| kill(pidfd).is_ok())
    }

    /// Returns, once, whether its messages have been unread for `patience`, or the server has been
    /// busy with it for so long.
    pub(super) fn is_unheard(&mut self, patience: Duration) -> bool {
        let looks = journal::beats(&self.journal, self.from);
        let now = Instant::now();
        // A poll of a userfaultfd waits for nothing (apart/T2).
        let mut fds = [PollFd::new(&self.descriptor, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let speaks = poll(&mut fds, Some(&at_once)).is_ok_and(|ready| ready > 0)
            && fds[0].revents().contains(PollFlags::IN);
        // An odd number: a server is looking, and has not finished.
        let is_busy = looks.is_some_and(|looks| looks % 2 == 1);
        if looks != self.looks.0 || !(speaks || is_busy) {
            (self.looks, self.is_reported) = ((looks, now), false);
        }
        let is_late = now.duration_since(self.looks.1) >= patience;
        is_late && !std::mem::replace(&mut self.is_reported, is_late)
    }
}

/// Returns the guest that a front has handed over.
pub(super) fn arrived(fds: Vec<OwnedFd>, done: Done) -> io::Result<Arrived> {
    let mut fds = fds.into_iter();
    let (Some(fd), Some(journal), Some(stream)) = (fds.next(), fds.next(), fds.next()) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let journal = File::from(journal);
    let (text, _) = journal::about(&journal)?;
    let end = text.iter().position(|&byte| byte == b'\n').ok_or(io::ErrorKind::InvalidData)?;
    let About { number, image, pid } = serde_json::from_slice(&text[..end])?;
    let text = text[end + 1..].to_vec();
    let descriptor = Descriptor::new(fd);
    let offer = Offer { stream: stream.into(), text, descriptor, pid };
    Ok(Arrived { image, offer, number: Some(number), journal: Ok(journal), done })
}
