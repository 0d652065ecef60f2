//! A look at everything that this user runs: what each run and each server says of itself.
//!
//! Threads of a look draw the next socket from one counter and put the answer into one list, under
//! its lock, which nothing else is done under.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use zfold_pool::Lock;

use crate::control::client::Client;
use crate::control::runtime;
use crate::control::state::RunState;
use crate::disk::report::Report;
use crate::guest::report::GuestsReport;
use crate::shared::exit::Failure;

/// How long one may take to answer. One that was stopped does not answer and is left out.
const PATIENCE: Duration = Duration::from_secs(1);

/// How many are asked at the same time.
const AT_ONCE: usize = 32;

/// One answer, and its time.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    pub(crate) at: Instant,
    pub(crate) what: T,
}

impl<T> Answer<T> {
    /// Returns the seconds since an earlier answer; 0 without one.
    pub(crate) fn seconds_since(&self, earlier: Option<&Self>) -> f64 {
        earlier.map_or(0.0, |it| self.at.saturating_duration_since(it.at).as_secs_f64())
    }
}

/// All answers.
#[derive(Debug, Default)]
pub(crate) struct Look {
    pub(crate) runs: Vec<Answer<RunState>>,
    pub(crate) servers: Vec<Answer<Report>>,
    pub(crate) guests: Vec<Answer<GuestsReport>>,
}

impl Look {
    /// Asks all. One that ends meanwhile is left out.
    ///
    /// # Errors
    /// The runtime directory is there and not this user's alone.
    pub(crate) fn take() -> Result<Self, Failure> {
        let runs: Vec<_> = runtime::live_runs()?.into_iter().map(|(_, socket)| socket).collect();
        let (servers, guests) = (runtime::live_controls()?, runtime::live_guests()?);
        Ok(Self { runs: ask_all(&runs), servers: ask_all(&servers), guests: ask_all(&guests) })
    }

    /// Returns the run of this number.
    pub(crate) fn run(&self, pid: u32) -> Option<&Answer<RunState>> {
        self.runs.iter().find(|run| run.what.pid == pid)
    }

    /// Returns the server of disks of this number.
    pub(crate) fn server(&self, pid: u32) -> Option<&Answer<Report>> {
        self.servers.iter().find(|server| server.what.pid == pid)
    }

    /// Returns the guest server of this number.
    pub(crate) fn guests(&self, pid: u32) -> Option<&Answer<GuestsReport>> {
        self.guests.iter().find(|server| server.what.pid == pid)
    }
}

/// Asks servers, some at a time: those that do not answer hold up the others little. The answers
/// are in the order of the sockets.
fn ask_all<T: DeserializeOwned + Send>(sockets: &[PathBuf]) -> Vec<Answer<T>> {
    let (next, found) = (AtomicUsize::new(0), Lock::new(Vec::new()));
    let ask = || {
        // Relaxed: each number is drawn once.
        let draw = || next.fetch_add(1, Ordering::Relaxed);
        let mut at = draw();
        while let Some(socket) = sockets.get(at) {
            let answer = ask(socket).map(|answer| (at, answer));
            found.lock().extend(answer);
            at = draw();
        }
    };
    thread::scope(|scope| {
        for _ in 1..sockets.len().min(AT_ONCE) {
            // Where there are no more threads, those that there are ask all.
            let _ = thread::Builder::new().spawn_scoped(scope, ask);
        }
        ask();
    });
    let mut found = std::mem::take(&mut *found.lock());
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, answer)| answer).collect()
}

fn ask<T: DeserializeOwned>(socket: &Path) -> Option<Answer<T>> {
    let client = Client::at(socket).ok()?;
    let found = client.with_patience(PATIENCE).ok()?.ask("stat", Vec::new()).ok()?;
    let what = serde_json::from_value(found).ok()?;
    Some(Answer { at: Instant::now(), what })
}
