//! A look at everything that this user runs: what each run and each server says of itself.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

use crate::control::client::Client;
use crate::control::runtime;
use crate::control::state::RunState;
use crate::disk::report::Report;
use crate::guest::report::GuestsReport;
use crate::shared::exit::Failure;

/// How long one may take to answer. One that was stopped does not answer and is left out.
const PATIENCE: Duration = Duration::from_secs(1);

/// One answer, and its time.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    /// Its control socket.
    pub(crate) socket: PathBuf,
    pub(crate) at: Instant,
    pub(crate) what: T,
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
        let runs = runtime::live_runs()?.into_iter().filter_map(|(_, socket)| ask(socket));
        let servers = runtime::live_controls()?.into_iter().filter_map(ask);
        let guests = runtime::live_guests()?.into_iter().filter_map(ask);
        Ok(Self { runs: runs.collect(), servers: servers.collect(), guests: guests.collect() })
    }
}

fn ask<T: DeserializeOwned>(socket: PathBuf) -> Option<Answer<T>> {
    let found = answer(&socket)?;
    let what = serde_json::from_value(found).ok()?;
    Some(Answer { socket, at: Instant::now(), what })
}

fn answer(socket: &Path) -> Option<serde_json::Value> {
    let client = Client::at(socket, None).ok()?;
    client.with_patience(PATIENCE).ok()?.ask("stat", Vec::new()).ok()
}
