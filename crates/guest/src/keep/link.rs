//! A server's end of the channel to its front.
//!
//! One thread receives; any may send. A thread that makes a request holds the lock of the answers
//! until it has one, and the front answers requests in order. The lock for a new stock is not taken
//! together with these.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::Builder;
use std::{fmt, io};

use zfold_store::pool::Lock;

use super::channel::{Channel, ToFront, ToServer};
use super::kept::arrived;
use crate::serve::Server;
use crate::serve::prompt::be_prompt;
use crate::serve::session::Fate;
use crate::serve::start::start;

/// A machine that another server put pages into.
#[derive(Debug)]
pub struct Handed {
    pub(crate) number: u64,
    pub(crate) image: String,
    pub(crate) fds: Vec<OwnedFd>,
}

/// What a front asks of a server.
#[derive(Debug)]
pub enum Order {
    /// Put pages into a machine: [`adopt`](crate::adopt).
    Machine(Handed),
    /// Make a new stock: [`renew`](super::renew).
    Renew,
    /// Give each guest all of its pages, and end.
    Release,
    /// It is gone (H7).
    Gone,
}

/// What a server begins with.
#[derive(Debug)]
pub struct Begin {
    /// The front's process.
    pub front: u32,
    /// Earlier servers that were lost.
    pub takeovers: u64,
    /// The sockets to answer, as the front has them.
    pub sockets: Vec<OwnedFd>,
}

/// A server's end of the channel to its front.
pub struct Link {
    pub(super) channel: Arc<Channel>,
    /// Answers to requests, which are made one at a time.
    answers: Lock<Receiver<Result<String, String>>>,
    /// Held while a stock is made and sent: the front keeps the last one.
    pub(super) renewing: Lock<()>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("channel", &self.channel).finish_non_exhaustive()
    }
}

impl Link {
    /// Serves the guests that the front hands over, and passes its other messages to `tell`.
    ///
    /// # Errors
    /// No thread can be started, or the front is gone.
    pub fn start(
        channel: OwnedFd,
        server: Arc<Server>,
        tell: impl Fn(Order) + Send + 'static,
    ) -> io::Result<(Self, Begin)> {
        let channel = Arc::new(Channel::new(channel));
        let begin = match channel.receive() {
            Some((ToServer::Begin { front, takeovers }, sockets)) => {
                Begin { front, takeovers, sockets }
            }
            _ => return Err(io::ErrorKind::NotConnected.into()),
        };
        let (said, answers) = mpsc::channel();
        let mine = Arc::clone(&channel);
        let run = move || {
            be_prompt();
            hear(&mine, &server, &said, &tell);
            tell(Order::Gone);
        };
        Builder::new().name("zfold-link".to_owned()).spawn(run)?;
        let (answers, renewing) = (Lock::new(answers), Lock::default());
        Ok((Self { channel, answers, renewing }, begin))
    }

    /// Has guests of an image accepted; returns where they connect.
    ///
    /// # Errors
    /// Why they cannot, in a line.
    pub fn listen(&self, image: &str) -> Result<PathBuf, String> {
        self.ask(&ToFront::Listen(image.to_owned()), &[]).map(PathBuf::from)
    }

    /// Stops accepting guests of an image, and removes its socket.
    pub fn close(&self, image: &str) {
        // A front that is gone accepts no guests.
        let _ = self.ask(&ToFront::Close(image.to_owned()), &[]);
    }

    /// Has the front keep what a machine's pages are put in by, the connection first and the
    /// progress second; returns the machine's number. A front that is gone keeps nothing.
    pub(crate) fn keep(&self, image: &str, fds: &[BorrowedFd<'_>]) -> Option<u64> {
        self.ask(&ToFront::Machine(image.to_owned()), fds).ok()?.parse().ok()
    }

    /// Reports that a machine needs no server.
    pub(crate) fn ended(&self, number: u64) {
        self.say(&ToFront::Ended(number));
    }

    fn ask(&self, request: &ToFront, fds: &[BorrowedFd<'_>]) -> Result<String, String> {
        let answers = self.answers.lock();
        let gone = || "its front is gone: no guests are accepted".to_owned();
        self.channel.send(request, fds).map_err(|_| gone())?;
        answers.recv().map_err(|_| gone())?
    }

    /// Reports that all images are there.
    pub fn ready(&self) {
        self.say(&ToFront::Ready);
    }

    /// Asks for the end, which the front then orders.
    pub fn stop(&self) {
        self.say(&ToFront::Stop);
    }

    /// Reports that this process ends with this status.
    pub fn done(&self, status: u8) {
        self.say(&ToFront::Done(status));
    }

    fn say(&self, message: &ToFront) {
        // A front that is gone needs no report.
        let _ = self.channel.send(message, &[]);
    }
}

/// Acts on the front's messages until it is gone.
fn hear(
    channel: &Arc<Channel>,
    server: &Arc<Server>,
    said: &Sender<Result<String, String>>,
    tell: &impl Fn(Order),
) {
    while let Some((message, fds)) = channel.receive() {
        match message {
            ToServer::Guest(number) => {
                let to = Arc::clone(channel);
                let report = move |fate| {
                    let message = match fate {
                        Fate::Held => ToFront::Held(number),
                        Fate::Ended => ToFront::Ended(number),
                    };
                    // Same as above.
                    let _ = to.send(&message, &[]);
                };
                // A guest that cannot be read stays with the front (H2), which reports that it gets
                // no answer.
                if let Ok(arrived) = arrived(fds, Box::new(report)) {
                    start(server, arrived);
                }
            }
            ToServer::Machine(number, image) => tell(Order::Machine(Handed { number, image, fds })),
            // The thread that asked waits for it.
            ToServer::Answer(found) => drop(said.send(found)),
            ToServer::Failed(number) => server.failed_before(number),
            ToServer::Renew => tell(Order::Renew),
            ToServer::Release => tell(Order::Release),
            // It was the first message.
            ToServer::Begin { .. } => {}
        }
    }
}
