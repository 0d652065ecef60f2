//! A server's end of the channel to its front.
//!
//! One thread hears; any may speak. Who asks for something holds the lock of the answers until
//! there is one, and the front answers in the order in which it was asked. The lock for a new stock
//! is taken with none of these.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::{fmt, io};

use super::channel::{Channel, ToFront, ToServer};
use super::kept::arrived;
use crate::serve::Server;

/// What a front tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
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
    /// Servers before it that were lost.
    pub takeovers: u64,
    /// The sockets to answer, as the front has them.
    pub sockets: Vec<OwnedFd>,
}

/// A server's end of the channel to its front.
pub struct Link {
    pub(super) channel: Arc<Channel>,
    /// What became of requests: one at a time is under way.
    answers: Mutex<Receiver<Result<String, String>>>,
    /// Held while a stock is made and sent: the front keeps the last one.
    pub(super) renewing: Mutex<()>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("channel", &self.channel).finish_non_exhaustive()
    }
}

impl Link {
    /// Serves the guests that the front hands on, and gives what else it says to `tell`.
    ///
    /// # Errors
    /// No thread can be started, or the front is gone.
    pub fn start(
        channel: OwnedFd,
        server: Arc<Server>,
        tell: impl Fn(Told) + Send + 'static,
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
            hear(&mine, &server, &said, &tell);
            tell(Told::Gone);
        };
        Builder::new().name("zfold-link".to_owned()).spawn(run)?;
        let (answers, renewing) = (Mutex::new(answers), Mutex::default());
        Ok((Self { channel, answers, renewing }, begin))
    }

    /// Has guests of an image accepted; returns where they connect.
    ///
    /// # Errors
    /// Why they cannot, in a line.
    pub fn listen(&self, image: &str) -> Result<PathBuf, String> {
        self.ask(&ToFront::Listen(image.to_owned())).map(PathBuf::from)
    }

    /// Has no guest of an image accepted from now on; its socket is gone then.
    pub fn close(&self, image: &str) {
        // A front that is gone accepts nobody.
        let _ = self.ask(&ToFront::Close(image.to_owned()));
    }

    fn ask(&self, request: &ToFront) -> Result<String, String> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = || "its front is gone: nobody accepts guests".to_owned();
        self.channel.send(request, &[]).map_err(|_| gone())?;
        answers.recv().map_err(|_| gone())?
    }

    /// Says that all images are there.
    pub fn ready(&self) {
        self.say(&ToFront::Ready);
    }

    /// Asks for the end, which the front then tells.
    pub fn stop(&self) {
        self.say(&ToFront::Stop);
    }

    /// Says that this process ends with this status.
    pub fn done(&self, status: u8) {
        self.say(&ToFront::Done(status));
    }

    fn say(&self, message: &ToFront) {
        // A front that is gone needs to hear nothing.
        let _ = self.channel.send(message, &[]);
    }
}

/// Does what the front says, until it is gone.
fn hear(
    channel: &Arc<Channel>,
    server: &Server,
    said: &Sender<Result<String, String>>,
    tell: &impl Fn(Told),
) {
    while let Some((message, fds)) = channel.receive() {
        match message {
            ToServer::Guest(number) => {
                let to = Arc::clone(channel);
                let done = move || {
                    // As above.
                    let _ = to.send(&ToFront::Ended(number), &[]);
                };
                // One that cannot be read stays with the front (H2), which says that nobody
                // answers it.
                if let Ok(arrived) = arrived(fds, Box::new(done)) {
                    server.adopt(arrived);
                }
            }
            // Who asked has an ear for it.
            ToServer::Answer(found) => drop(said.send(found)),
            ToServer::Failed(number) => server.failed_before(number),
            ToServer::Renew => tell(Told::Renew),
            ToServer::Release => tell(Told::Release),
            // It was the first one.
            ToServer::Begin { .. } => {}
        }
    }
}
