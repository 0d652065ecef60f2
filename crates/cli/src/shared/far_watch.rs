//! Reports when other machines stop answering, and when they answer again: once for each change.
//!
//! A separate thread looks, so that threads that work with pages do not wait for the reader of
//! these messages.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use zfold_far::FarBacking;

use super::far::FarReport;

/// How often it looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// Returns what an engine that is gone means for a run, and what can be done.
pub(crate) fn of_a_run(pid: u32) -> String {
    format!(
        "pages stay in memory until it takes them again, and the run ends when they reach \
            --store-limit: start it or fix what it reports, or raise the limit (zfold ctl --pid \
            {pid} \
         set store-limit=SIZE)"
    )
}

/// Returns the same for a disk.
pub(crate) fn of_a_disk() -> String {
    "pages stay in memory until it takes them again, and writes fail when they reach --limit: \
        start it or fix what it reports, or raise the limit (zfold ctl set mem_limit=SIZE)"
        .to_owned()
}

/// A thread that looks, until this is dropped.
#[derive(Debug)]
pub(crate) struct FarWatch {
    /// The thread waits for its end.
    _ends: Sender<()>,
}

impl FarWatch {
    /// Calls `tell` with each change of `far`, and its remedy.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn start(
        far: Arc<FarBacking>,
        remedy: String,
        tell: impl Fn(&str) + Send + 'static,
    ) -> io::Result<Self> {
        let (ends, ended) = mpsc::channel();
        let look = move || {
            let mut troubles = Troubles::default();
            while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let lines = troubles.lines(&FarReport::of(&far), &remedy, Instant::now());
                lines.iter().for_each(|line| tell(line));
            }
        };
        std::thread::Builder::new().name("zfold-far-watch".to_owned()).spawn(look)?;
        Ok(Self { _ends: ends })
    }
}

/// Reported troubles that persist.
#[derive(Debug, Default)]
struct Troubles {
    absent: Option<Instant>,
    away: Vec<(String, Instant)>,
}

impl Troubles {
    /// Returns what is new at `now`.
    fn lines(&mut self, far: &FarReport, remedy: &str, now: Instant) -> Vec<String> {
        let mut lines = Vec::new();
        let for_long = |since: Instant| format!("after {} s", (now - since).as_secs());
        match self.absent {
            None if far.absent => {
                let why = far.last_failure.as_ref().unwrap_or(&far.engine);
                lines.push(format!("{why}; {remedy}"));
                self.absent = Some(now);
            }
            Some(since) if !far.absent => {
                let (engine, after) = (&far.engine, for_long(since));
                lines.push(format!("{engine} takes pages again {after}"));
                self.absent = None;
            }
            _ => {}
        }
        self.away.retain(|(server, since)| {
            let is_away = far.servers_away.contains(server);
            if !is_away {
                lines.push(format!("{server} answers again {}", for_long(*since)));
            }
            is_away
        });
        for server in &far.servers_away {
            // Of an engine of one server that is gone, one line is enough.
            let is_all = far.absent && *server == far.engine;
            if !is_all && !self.away.iter().any(|(told, _)| told == server) {
                lines.push(format!(
                    "{server} does not answer; pages that only it holds cannot be read until it \
                        is back: start it again"
                ));
                self.away.push((server.clone(), now));
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn far(absent: bool, away: &[&str]) -> FarReport {
        FarReport {
            engine: "redis at a:1".to_owned(),
            absent,
            servers_away: away.iter().map(|server| (*server).to_owned()).collect(),
            last_failure: absent.then(|| "redis at a:1: no answer in time".to_owned()),
            ..FarReport::default()
        }
    }

    #[test]
    fn each_change_is_told_once() {
        let (mut told, start) = (Troubles::default(), Instant::now());
        let mut lines = |far: FarReport, seconds| {
            told.lines(&far, &of_a_disk(), start + Duration::from_secs(seconds)).join("\n")
        };
        assert_eq!(lines(far(false, &[]), 0), "");
        let gone = lines(far(true, &["redis at a:1"]), 1);
        assert!(gone.starts_with("redis at a:1: no answer in time; pages stay"), "{gone}");
        assert!(gone.contains("start it or") && !gone.contains('\n'), "{gone}");
        assert_eq!(lines(far(true, &["redis at a:1"]), 5), "");
        assert_eq!(lines(far(false, &[]), 13), "redis at a:1 takes pages again after 12 s");
        assert_eq!(lines(far(false, &[]), 14), "");
    }

    #[test]
    fn a_server_of_several_is_told_of_by_its_name() {
        let (mut told, start) = (Troubles::default(), Instant::now());
        let mut lines = |away: &[&str], seconds| {
            told.lines(&far(false, away), &of_a_run(7), start + Duration::from_secs(seconds))
        };
        let said = lines(&["redis at b:2"], 0);
        assert!(
            said.len() == 1 && said[0].starts_with("redis at b:2 does not answer;"),
            "{said:?}"
        );
        assert!(lines(&["redis at b:2"], 1).is_empty());
        let said = lines(&["redis at c:3"], 2);
        assert_eq!(said[0], "redis at b:2 answers again after 2 s");
        assert!(said.len() == 2 && said[1].starts_with("redis at c:3"), "{said:?}");
        assert_eq!(lines(&[], 4), ["redis at c:3 answers again after 2 s"]);
    }
}
