//! A connection to a VMM: bytes with a limit of time, and descriptors beside them.

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv};
use thiserror::Error;

use super::wire::{self, Answer, Command, HEADER, Request};
use crate::serve::apart::{Foreign, Visitor};
use crate::sys::send;

/// Descriptors of which is known that they are too many.
const FDS: usize = 2;

/// Why a connection is of no use any longer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Broken {
    /// The other side has gone.
    #[error("it has disconnected")]
    Left,
    /// The other side takes too long.
    #[error("nothing has come from it for {} s", .0.as_secs())]
    Late(Duration),
    /// It answers with something else than an answer.
    #[error("{0}")]
    Header(#[from] wire::Refused),
    /// It does not do what it was asked for.
    #[error("it refuses {0}: see what it says about that")]
    Refused(&'static str),
    /// The system's error.
    #[error("{0}")]
    System(#[from] io::Error),
}

impl From<Errno> for Broken {
    fn from(error: Errno) -> Self {
        match error {
            Errno::PIPE | Errno::CONNRESET => Self::Left,
            error => Self::System(error.into()),
        }
    }
}

/// A connection.
#[derive(Debug)]
pub(super) struct Peer {
    stream: UnixStream,
    /// How long the other side may take for each message.
    patience: Duration,
}

impl Peer {
    pub(super) fn new(stream: UnixStream, patience: Duration) -> Self {
        Self { stream, patience }
    }

    /// Receives as many bytes as `into` has. Descriptors beside them are not received.
    pub(super) fn read(&self, mut into: &mut [u8]) -> Result<(), Broken> {
        let until = Instant::now() + self.patience;
        while !into.is_empty() {
            self.stream.set_read_timeout(Some(self.left(until)?))?;
            match recv(&self.stream, &mut *into, RecvFlags::empty()) {
                Ok((_, 0)) => return Err(Broken::Left),
                Ok((_, len)) => into = &mut into[len..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(Broken::Late(self.patience)),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The same, and the descriptors beside them, in the thread of a stranger's connection.
    pub(super) fn read_by(
        &self,
        visitor: &Visitor,
        mut into: &mut [u8],
    ) -> Result<Vec<Foreign>, Broken> {
        let until = Instant::now() + self.patience;
        let mut fds = Vec::new();
        while !into.is_empty() {
            match visitor.receive(into, until)? {
                Some((0, _)) => return Err(Broken::Left),
                Some((len, more)) => {
                    fds.extend(more);
                    into = &mut into[len..];
                }
                None => return Err(Broken::Late(self.patience)),
            }
            // A peer that sends a descriptor with each byte sends too many. They are closed when
            // the thread ends (apart/T1).
            fds.truncate(FDS);
        }
        Ok(fds)
    }

    /// Sends bytes, and a descriptor beside the first of them.
    pub(super) fn write(
        &self,
        mut bytes: &[u8],
        mut fd: Option<BorrowedFd<'_>>,
    ) -> Result<(), Broken> {
        let until = Instant::now() + self.patience;
        while !bytes.is_empty() {
            self.stream.set_write_timeout(Some(self.left(until)?))?;
            match send(&self.stream, bytes, fd.as_slice(), SendFlags::empty()) {
                Ok(len) => (bytes, fd) = (&bytes[len..], None),
                Err(Errno::AGAIN) => return Err(Broken::Late(self.patience)),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Returns how much time is left.
    fn left(&self, until: Instant) -> Result<Duration, Broken> {
        let left = until.saturating_duration_since(Instant::now());
        // A timeout of 0 would mean none.
        if left < Duration::from_millis(1) { Err(Broken::Late(self.patience)) } else { Ok(left) }
    }

    pub(super) fn answer(&self, answer: Answer) -> Result<(), Broken> {
        self.write(&answer.encode(), None)
    }

    /// Refuses the last request. If its payload was received, the peer may abandon the migration
    /// then, and is answered.
    pub(super) fn refuse(self) {
        let last = Self { patience: Duration::from_secs(1), ..self };
        // It may have left; nothing depends on what it hears.
        let Ok(()) = last.answer(Answer::REFUSED) else { return };
        let mut header = [0; HEADER];
        let abandoned = Request::new(Command::Abandon, 0);
        if last.read(&mut header).is_ok() && Request::decode(&header) == Ok(abandoned) {
            let _ = last.answer(Answer::DONE);
        }
    }

    /// Sends a request with its payload, and a descriptor beside that, and waits until it is
    /// done.
    pub(super) fn ask(
        &self,
        (command, name): (Command, &'static str),
        payload: &[u8],
        fd: Option<BorrowedFd<'_>>,
    ) -> Result<(), Broken> {
        let request = Request::new(command, payload.len() as u64);
        self.write(&request.encode(), None)?;
        self.write(payload, fd)?;
        let mut header = [0; HEADER];
        self.read(&mut header)?;
        match Answer::decode(&header)? {
            Answer { is_done: true, len: 0 } => Ok(()),
            _ => Err(Broken::Refused(name)),
        }
    }
}
