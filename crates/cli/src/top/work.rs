//! Work that the view leaves to other threads: looking at each interval, and asking runs and disks.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use super::keys::Ask;
use crate::control::client::Client;
use crate::shared::exit::Failure;
use crate::watched::look::Look;
use crate::watched::machine::Machine;
use crate::watched::subject::Subject;

/// Its results.
#[derive(Debug)]
pub(super) enum News {
    /// All runs and disks, and the machine.
    Seen(Vec<Subject>, Machine),
    /// A line for people.
    Message(String),
}

/// The threads that do it. They end when this is dropped, or with the process.
#[derive(Debug)]
pub(super) struct Workers {
    sender: Sender<News>,
    news: Receiver<News>,
    /// Closed when this is dropped.
    _end: Sender<()>,
}

impl Workers {
    /// Looks at once, and then at each interval.
    ///
    /// # Errors
    /// That of the first look, or no thread can be started.
    pub(super) fn start(interval: Duration) -> Result<Self, Failure> {
        let mut before = Look::take()?;
        let (sender, news) = channel();
        let (end, ended) = channel();
        let first = News::Seen(Subject::all(&before, &Look::default()), Machine::now());
        let _ = sender.send(first);
        let news_sender = sender.clone();
        let look = move || {
            while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                let news = match Look::take() {
                    Ok(now) => {
                        let subjects = Subject::all(&now, &before);
                        before = now;
                        News::Seen(subjects, Machine::now())
                    }
                    Err(failure) => News::Message(failure.line().to_owned()),
                };
                if news_sender.send(news).is_err() {
                    return;
                }
            }
        };
        spawn(look)?;
        Ok(Self { sender, news, _end: end })
    }

    /// Returns all results since the last call.
    pub(super) fn news(&self) -> impl Iterator<Item = News> {
        self.news.try_iter()
    }

    /// Sends a request to a run or a disk, and reports the answer.
    pub(super) fn ask(&self, ask: Ask) {
        let news_sender = self.sender.clone();
        let work = move || {
            let Ask { socket, disk, command, words, what } = ask;
            let answer =
                Client::at(&socket, disk).and_then(|mut client| client.ask(command, words));
            let line = match answer {
                Ok(_) => format!("{what}: done"),
                Err(failure) => format!("{what}: {}", failure.line()),
            };
            let _ = news_sender.send(News::Message(line));
        };
        if let Err(failure) = spawn(work) {
            let _ = self.sender.send(News::Message(failure.line().to_owned()));
        }
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let thread = thread::Builder::new().name("zfold-top".to_owned()).spawn(work);
    thread.map(drop).map_err(|error| {
        Failure::new(format!(
            "cannot start a thread: {error}; raise the limit of processes (ulimit -u)"
        ))
    })
}
