//! The thread of an image's socket: it accepts, and reads hand-shakes.
//!
//! - A1: a connection has a place before it is accepted (G7).
//! - A2: so many hand-shakes are read at a time; where there are more, the oldest gives way. So
//!   nobody keeps others out by saying nothing.

use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::descriptor::{Descriptor, Unfit};
use super::figures::GuestState;
use super::handshake::{Failed, Handshake, Offer};
use super::session::Session;
use super::shared::Shared;
use crate::core::guest::Guest;
use crate::core::regions;

/// Hand-shakes of an image at a time.
const HANDSHAKES: usize = 32;

/// Wait where there is no place, or the system has no descriptor or thread.
const BREATH: Duration = Duration::from_millis(100);

/// Bytes of a guest's stack.
const STACK: usize = 256 << 10;

/// Accepts the guests of an image until `closed`, of which the listener's end tells.
pub(super) fn accept(
    shared: &Arc<Shared>,
    image: &str,
    listener: &UnixListener,
    closed: &AtomicBool,
) {
    let mut pending: Vec<Handshake> = Vec::new();
    // Acquire: pairs with the one that closes; the listener was shut down before.
    while !closed.load(Ordering::Acquire) {
        let (heard, called) = wait(shared, listener, &pending);
        for at in heard.into_iter().rev() {
            match pending[at].receive() {
                Ok(()) if pending[at].is_done() => start(shared, image, pending.remove(at)),
                Ok(()) => {}
                Err(failed) => fail(shared, image, pending.remove(at), &failed),
            }
        }
        let is_late = |one: &Handshake| one.since.elapsed() >= shared.options.handshake;
        while pending.first().is_some_and(is_late) {
            end(shared, image, pending.remove(0));
        }
        if !called || !shared.take_place() {
            continue;
        }
        match listener.accept() {
            Ok((stream, _)) => {
                if pending.len() == HANDSHAKES {
                    end(shared, image, pending.remove(0));
                }
                pending.push(Handshake::new(stream));
            }
            Err(error) => {
                shared.leave_place();
                if error.kind() != std::io::ErrorKind::WouldBlock {
                    thread::sleep(BREATH);
                }
            }
        }
    }
    pending.drain(..).for_each(|one| end(shared, image, one));
}

/// Ends a hand-shake that has had its time.
fn end(shared: &Shared, image: &str, one: Handshake) {
    if let Err(failed) = one.finish() {
        say_failed(shared, image, &failed);
    }
    shared.failed();
}

fn fail(shared: &Shared, image: &str, one: Handshake, failed: &Failed) {
    drop(one);
    say_failed(shared, image, failed);
    shared.failed();
}

fn say_failed(shared: &Shared, image: &str, failed: &dyn std::fmt::Display) {
    shared.report(&format!("a connection to {image} came to nothing: {failed}"));
}

/// Waits until somebody says something; returns who, and whether somebody new is there.
fn wait(shared: &Shared, listener: &UnixListener, pending: &[Handshake]) -> (Vec<usize>, bool) {
    let listens = shared.has_place();
    let fds = pending.iter().map(AsFd::as_fd).chain(listens.then(|| listener.as_fd()));
    let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    let deadline = pending.first().map(|oldest| {
        (oldest.since + shared.options.handshake).saturating_duration_since(Instant::now())
    });
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

/// Starts the thread of a guest that has said all.
fn start(shared: &Arc<Shared>, image: &str, done: Handshake) {
    let begun = match done.finish() {
        Ok(offer) => begin(shared, image, offer),
        Err(failed) => Err(failed.to_string()),
    };
    let session = match begun {
        Ok(session) => session,
        Err(told) => {
            say_failed(shared, image, &told);
            return shared.failed();
        }
    };
    // Where no thread can be started, the guest waits: its descriptor must not be closed.
    let handed = Arc::new(Mutex::new(Some(session)));
    loop {
        let taken = Arc::clone(&handed);
        let run = move || {
            let session = taken.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(session) = session {
                session.run();
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

/// Returns the guest that makes this offer, served if its regions are right, else held.
fn begin(shared: &Arc<Shared>, image: &str, offer: Offer) -> Result<Session, String> {
    let Offer { stream, text, fd, pid } = offer;
    let other = "what it sent is no userfaultfd".to_owned();
    let descriptor = Descriptor::new(fd).map_err(|_| other)?;
    let image = shared.images.claim(image).map_err(|error| error.to_string())?;
    let checked = regions::parse(&text, image.pages()).map_err(|error| error.to_string());
    let checked = checked.and_then(|regions| match descriptor.check(&regions) {
        Ok(()) => Ok(regions),
        Err(Unfit::Unregistered(error)) => {
            Err(format!("its regions are not registered with its userfaultfd ({error})"))
        }
        Err(_) => Err("it is gone".to_owned()),
    });
    let state = if checked.is_ok() { GuestState::Served } else { GuestState::Held };
    let figures = shared.enter(image.name(), pid, state);
    if let Err(told) = &checked {
        let (who, image) = (figures.who(), image.name());
        shared.report(&format!("{who} of {image} is not served, and waits: {told}"));
    }
    let guest = checked.ok().map(Guest::new);
    Ok(Session { shared: Arc::clone(shared), image, figures, stream, descriptor, guest })
}
