//! The thread of an image's socket: it accepts connections, each of which is read apart.
//!
//! - A1: a connection has a place before it is accepted (G7), and keeps it until all that came by
//!   it is closed (apart/T4).
//! - A2: at most `HANDSHAKES` handshakes of an image are read at the same time; if there are more,
//!   the oldest is ended. So a silent peer keeps nobody out. While as many have ended and are not
//!   closed yet, none is accepted: their peers keep the guests of this image out, and of no other.

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::front::Front;
use crate::serve::apart::Apart;
use crate::serve::handshake::{LEFT, NO_UFFD, Offer, shake};
use crate::sys::poll;

/// Most handshakes of an image at the same time.
const HANDSHAKES: usize = 32;

/// Wait if no place is free, or the system has no descriptor or thread.
const BREATH: Duration = Duration::from_millis(100);

/// Least time between two lines about handshakes that failed, and the time that handshakes have
/// to end with their socket.
const SECOND: Duration = Duration::from_secs(1);

/// A connection that is read.
struct Pending {
    thread: Apart<Result<Vec<u8>, String>>,
    /// It was told to end.
    is_dismissed: bool,
}

/// Lines about handshakes that failed: one a second, with how many had none.
#[derive(Default)]
struct Lines {
    last: Option<Instant>,
    hidden: u64,
}

/// An image's door.
struct Door<'a> {
    front: &'a Front,
    image: &'a str,
    /// The oldest first.
    pending: Vec<Pending>,
    lines: Lines,
}

impl Pending {
    fn dismiss(&mut self) {
        self.is_dismissed = true;
        self.thread.dismiss();
    }
}

impl Front {
    /// Accepts guests of an image until `closed`, which the shutdown of the listener announces.
    pub(super) fn accept(&self, image: &str, listener: &UnixListener, closed: &AtomicBool) {
        Door { front: self, image, pending: Vec::new(), lines: Lines::default() }
            .accept(listener, closed);
    }
}

impl Door<'_> {
    fn accept(&mut self, listener: &UnixListener, closed: &AtomicBool) {
        // Acquire: pairs with the store by the closing thread; the listener was shut down before.
        while !closed.load(Ordering::Acquire) {
            if !self.hear(Some(listener), None) || !self.front.take_place(self.image) {
                continue;
            }
            match listener.accept() {
                Ok((stream, _)) => self.greet(stream),
                Err(error) => {
                    self.front.leave_place(self.image);
                    if error.kind() != io::ErrorKind::WouldBlock {
                        thread::sleep(BREATH);
                    }
                }
            }
        }
        self.pending.iter_mut().for_each(Pending::dismiss);
        let until = Instant::now() + SECOND;
        while !self.pending.is_empty() && Instant::now() < until {
            self.hear(None, Some(BREATH));
        }
        // What these have is closed, or will be, by their threads.
        self.pending.iter().for_each(|_| self.front.failed(self.image));
    }

    /// Has a connection read.
    fn greet(&mut self, stream: UnixStream) {
        let read = self.pending.iter_mut().filter(|one| !one.is_dismissed);
        let mut read: Vec<_> = read.collect();
        if read.len() >= HANDSHAKES {
            read[0].dismiss();
        }
        let limit = self.front.handshake();
        match Apart::start(stream, move |visitor| shake(visitor, limit)) {
            Ok(thread) => self.pending.push(Pending { thread, is_dismissed: false }),
            Err(error) => {
                self.fail(&format!("it cannot be heard: {error}"));
                thread::sleep(BREATH);
            }
        }
    }

    /// Waits until a handshake ends, and deals with it; returns whether there is a new connection
    /// for which there may be a place.
    fn hear(&mut self, listener: Option<&UnixListener>, wait: Option<Duration>) -> bool {
        let is_full = self.pending.iter().filter(|one| one.is_dismissed).count() >= HANDSHAKES;
        let listener = listener.filter(|_| !is_full && self.front.has_place(self.image));
        let fds = self.pending.iter().map(|one| one.thread.as_fd());
        let fds = fds.chain(listener.map(|listener| listener.as_fd()));
        let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let breath = listener.is_none().then_some(BREATH);
        let wait = wait.into_iter().chain(breath).chain(self.lines.due()).min();
        let polled = poll(&mut fds, wait);
        let heard = |fd: &PollFd<'_>| polled.is_ok() && !fd.revents().is_empty();
        let called = listener.is_some() && fds.pop().is_some_and(|fd| heard(&fd));
        let said: Vec<_> = (0..fds.len()).filter(|&at| heard(&fds[at])).collect();
        for at in said.into_iter().rev() {
            if self.pending[at].thread.hear() {
                let one = self.pending.remove(at);
                self.end(one);
            }
        }
        if self.lines.due() == Some(Duration::ZERO) {
            self.lines.say(None, |line| self.front.tell(&line), self.image);
        }
        called
    }

    /// Takes the guest of a handshake whose thread has ended.
    fn end(&mut self, one: Pending) {
        let offer = match one.thread.wait() {
            Some((told, fds)) => {
                told.and_then(|text| Offer::new(text, fds).ok_or_else(|| NO_UFFD.to_owned()))
            }
            None => Err(LEFT.to_owned()),
        };
        match offer {
            Ok(offer) => self.front.receive(self.image, offer),
            Err(failed) => self.fail(&failed),
        }
    }

    fn fail(&mut self, failed: &str) {
        self.lines.say(Some(failed), |line| self.front.tell(&line), self.image);
        self.front.failed(self.image);
    }
}

impl Lines {
    /// Returns how long it is until those without a line are counted in one.
    fn due(&self) -> Option<Duration> {
        let since = self.last.filter(|_| self.hidden > 0)?.elapsed();
        Some(SECOND.saturating_sub(since))
    }

    /// Reports a handshake that failed, or how many did of which nothing was said.
    fn say(&mut self, failed: Option<&str>, report: impl Fn(String), image: &str) {
        if self.last.is_some_and(|last| last.elapsed() < SECOND) {
            self.hidden += u64::from(failed.is_some());
            return;
        }
        let more = std::mem::take(&mut self.hidden);
        self.last = Some(Instant::now());
        match (failed, more) {
            (Some(failed), 0) => report(format!("a connection to {image} failed: {failed}")),
            (Some(failed), more) => report(format!(
                "a connection to {image} failed: {failed}; so did {more} more since the last line"
            )),
            (None, more) => {
                report(format!("{more} more connections to {image} failed since the last line"))
            }
        }
    }
}
