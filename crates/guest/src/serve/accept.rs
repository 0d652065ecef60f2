//! The thread of an image's socket: it accepts connections and reads handshakes.
//!
//! - A1: a connection has a place before it is accepted (G7).
//! - A2: at most `HANDSHAKES` handshakes are read at the same time; if there are more, the oldest
//!   is ended. So a silent peer keeps nobody out.

use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::handshake::{Failed, Handshake, Offer};

/// Most handshakes of an image at the same time.
const HANDSHAKES: usize = 32;

/// Wait if no place is free, or the system has no descriptor or thread.
const BREATH: Duration = Duration::from_millis(100);

/// The receiver of accepted guests.
pub(crate) trait Reception {
    /// How long a handshake may take.
    fn handshake(&self) -> Duration;
    /// Takes a place, if one is free.
    fn take_place(&self) -> bool;
    fn has_place(&self) -> bool;
    /// Gives a place back.
    fn leave_place(&self);
    /// Counts a handshake that failed, whose place is free again.
    fn failed(&self);
    fn report(&self, line: &str);
    /// Takes a guest whose message is complete.
    fn receive(&self, image: &str, offer: Offer);
}

/// Accepts guests of an image until `closed`, which the shutdown of the listener announces.
pub(crate) fn accept(
    to: &impl Reception,
    image: &str,
    listener: &UnixListener,
    closed: &AtomicBool,
) {
    let mut pending: Vec<Handshake> = Vec::new();
    // Acquire: pairs with the store by the closing thread; the listener was shut down before.
    while !closed.load(Ordering::Acquire) {
        let (heard, called) = wait(to, listener, &pending);
        for at in heard.into_iter().rev() {
            match pending[at].receive() {
                Ok(()) if pending[at].is_done() => end(to, image, pending.remove(at)),
                Ok(()) => {}
                Err(failed) => {
                    drop(pending.remove(at));
                    fail(to, image, &failed);
                }
            }
        }
        let is_late = |one: &Handshake| one.since.elapsed() >= to.handshake();
        while pending.first().is_some_and(is_late) {
            end(to, image, pending.remove(0));
        }
        if !called || !to.take_place() {
            continue;
        }
        match listener.accept() {
            Ok((stream, _)) => {
                if pending.len() == HANDSHAKES {
                    end(to, image, pending.remove(0));
                }
                pending.push(Handshake::new(stream));
            }
            Err(error) => {
                to.leave_place();
                if error.kind() != std::io::ErrorKind::WouldBlock {
                    thread::sleep(BREATH);
                }
            }
        }
    }
    pending.drain(..).for_each(|one| end(to, image, one));
}

/// Ends a handshake that is complete, or has run out of time.
fn end(to: &impl Reception, image: &str, one: Handshake) {
    match one.finish() {
        Ok(offer) => to.receive(image, offer),
        Err(failed) => fail(to, image, &failed),
    }
}

fn fail(to: &impl Reception, image: &str, failed: &Failed) {
    to.report(&format!("a connection to {image} failed: {failed}"));
    to.failed();
}

/// Waits until a peer sends something; returns which, and whether there is a new connection.
fn wait(to: &impl Reception, listener: &UnixListener, pending: &[Handshake]) -> (Vec<usize>, bool) {
    let listens = to.has_place();
    let fds = pending.iter().map(AsFd::as_fd).chain(listens.then(|| listener.as_fd()));
    let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    let deadline = pending
        .first()
        .map(|oldest| (oldest.since + to.handshake()).saturating_duration_since(Instant::now()));
    let breath = (!listens).then_some(BREATH);
    let wait = deadline.into_iter().chain(breath).min();
    let timeout = wait.map(|wait| Timespec {
        tv_sec: wait.as_secs() as i64,
        tv_nsec: i64::from(wait.subsec_nanos()),
    });
    if poll(&mut fds, timeout.as_ref()).is_err() {
        return (Vec::new(), false);
    }
    let heard = |fd: &PollFd<'_>| !fd.revents().is_empty();
    let called = listens && fds.pop().is_some_and(|fd| heard(&fd));
    let said = fds.iter().enumerate().filter(|(_, fd)| heard(fd)).map(|(at, _)| at);
    (said.collect(), called)
}
