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
    away: Option<Instant>,
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
        match self.away {
            // One line is enough of an engine that is gone.
            None if far.away && !far.absent => {
                lines.push(format!(
                    "{} does not answer; pages that it holds cannot be read until it is back: \
                     start it again",
                    far.engine
                ));
                self.away = Some(now);
            }
            Some(since) if !far.away => {
                lines.push(format!("{} answers again {}", far.engine, for_long(since)));
                self.away = None;
            }
            _ => {}
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn far(absent: bool, away: bool) -> FarReport {
        FarReport {
            engine: "redis at a:1".to_owned(),
            absent,
            away,
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
        assert_eq!(lines(far(false, false), 0), "");
        let gone = lines(far(true, true), 1);
        assert!(gone.starts_with("redis at a:1: no answer in time; pages stay"), "{gone}");
        assert!(gone.contains("start it or") && !gone.contains('\n'), "{gone}");
        assert_eq!(lines(far(true, true), 5), "");
        assert_eq!(lines(far(false, false), 13), "redis at a:1 takes pages again after 12 s");
        assert_eq!(lines(far(false, false), 14), "");
    }

    #[test]
    fn an_engine_that_does_not_answer_is_told_of_before_it_is_given_up() {
        let (mut told, start) = (Troubles::default(), Instant::now());
        let mut lines = |away: bool, seconds| {
            told.lines(&far(false, away), &of_a_run(7), start + Duration::from_secs(seconds))
        };
        let said = lines(true, 0);
        assert!(
            said.len() == 1 && said[0].starts_with("redis at a:1 does not answer;"),
            "{said:?}"
        );
        assert!(lines(true, 1).is_empty());
        assert_eq!(lines(false, 4), ["redis at a:1 answers again after 4 s"]);
    }
}
