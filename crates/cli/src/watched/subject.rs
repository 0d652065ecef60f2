//! A run, a disk or a guest server, as one line of a table.

use std::path::Path;

use super::guests::{self, Guests};
use super::look::Look;
use super::rates::{self, Disk, Run};
use crate::shared::clean::clean;

/// A run, a disk or a guest server.
#[derive(Clone, Debug)]
pub(crate) enum Subject {
    Run(Box<Run>),
    Disk(Box<Disk>),
    Guests(Box<Guests>),
}

/// Which one: it is the same at the next look.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) pid: u32,
    /// The name of a disk; none of a run.
    pub(crate) disk: Option<String>,
}

impl Subject {
    /// Returns all of a look, with their rates since an earlier one.
    pub(crate) fn all(now: &Look, before: &Look) -> Vec<Self> {
        let runs = rates::runs(now, before).into_iter().map(|run| Self::Run(Box::new(run)));
        let disks = rates::disks(now, before).into_iter().map(|disk| Self::Disk(Box::new(disk)));
        let guests = guests::guests(now, before).into_iter().map(|one| Self::Guests(Box::new(one)));
        runs.chain(disks).chain(guests).collect()
    }

    pub(crate) fn key(&self) -> Key {
        match self {
            Self::Run(run) => Key { pid: run.state.pid, disk: None },
            Self::Disk(disk) => Key { pid: disk.pid, disk: Some(disk.name.clone()) },
            Self::Guests(guests) => Key { pid: guests.pid, disk: None },
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        match self {
            Self::Run(run) => run.state.pid,
            Self::Disk(disk) => disk.pid,
            Self::Guests(guests) => guests.pid,
        }
    }

    /// Returns its control socket.
    pub(crate) fn socket(&self) -> &Path {
        match self {
            Self::Run(run) => &run.socket,
            Self::Disk(disk) => &disk.socket,
            Self::Guests(guests) => &guests.socket,
        }
    }

    /// Returns the command of a run, which disk it is, or what guests there are, in one clean line.
    pub(crate) fn command(&self) -> String {
        let command = match self {
            Self::Run(run) if run.state.paused => format!("(paused) {}", run.state.command),
            Self::Run(run) => run.state.command.clone(),
            Self::Disk(disk) => format!("disk {}", disk.name),
            Self::Guests(guests) => guests.what(),
        };
        clean(&command)
    }

    /// Returns the limit in bytes, if there is one.
    pub(crate) fn limit(&self) -> Option<u64> {
        match self {
            Self::Run(run) => Some(run.state.figures.limit_bytes),
            Self::Disk(disk) => (disk.limit_bytes > 0).then_some(disk.limit_bytes),
            Self::Guests(guests) => (guests.limit_bytes > 0).then_some(guests.limit_bytes),
        }
    }

    /// Returns what counts against the limit, in bytes.
    pub(crate) fn resident(&self) -> u64 {
        match self {
            Self::Run(run) => run.state.figures.resident_bytes,
            Self::Disk(disk) => disk.resident_bytes,
            Self::Guests(guests) => guests.resident_bytes,
        }
    }

    /// Returns the bytes of the pages that are stored.
    pub(crate) fn stored(&self) -> u64 {
        match self {
            Self::Run(run) => run.state.figures.stored_pages_bytes,
            Self::Disk(disk) => disk.stored_pages_bytes,
            Self::Guests(guests) => guests.stored_pages_bytes,
        }
    }

    pub(crate) fn ratio(&self) -> Option<f64> {
        match self {
            Self::Run(run) => run.ratio,
            Self::Disk(disk) => disk.ratio,
            Self::Guests(guests) => guests.ratio,
        }
    }

    /// Returns the faults that were answered each second.
    pub(crate) fn faults(&self) -> Option<f64> {
        match self {
            Self::Run(run) => run.rates.of(|run| run.faults_total),
            Self::Disk(_) => None,
            Self::Guests(guests) => guests.rates.of(|guests| guests.faults_total),
        }
    }

    /// Returns the pages that were taken back each second before they were compressed.
    pub(crate) fn refaults(&self) -> Option<f64> {
        self.of_run(|run| run.rates.of(|run| run.refaults_total))
    }

    /// Returns a figure of a run; others do not have it.
    pub(crate) fn of_run<T>(&self, figure: impl Fn(&Run) -> Option<T>) -> Option<T> {
        match self {
            Self::Run(run) => figure(run),
            Self::Disk(_) | Self::Guests(_) => None,
        }
    }

    /// Returns a time of a run in nanoseconds.
    pub(crate) fn recent(&self, figure: impl Fn(&Run) -> Option<u64>) -> Option<f64> {
        self.of_run(figure).map(|ns| ns as f64)
    }

    /// Returns the pages that left each second: a process, or the memory of a disk.
    pub(crate) fn evictions(&self) -> Option<f64> {
        match self {
            Self::Run(run) => run.rates.of(|run| run.evictions_total),
            Self::Disk(disk) => disk.kept.of(|disk| disk.backing_writes_total),
            Self::Guests(_) => None,
        }
    }

    /// Returns the bytes in use on the backing file, if there is one.
    pub(crate) fn backing(&self) -> Option<u64> {
        let (size, used) = match self {
            Self::Run(run) => {
                (run.state.figures.backing_bytes, run.state.figures.backing_used_bytes)
            }
            Self::Disk(disk) => (disk.backing_bytes, disk.backing_used_bytes),
            Self::Guests(_) => (0, 0),
        };
        (size > 0).then_some(used)
    }

    /// Returns the requests that a disk answered each second.
    pub(crate) fn requests(&self) -> Option<f64> {
        match self {
            Self::Run(_) | Self::Guests(_) => None,
            Self::Disk(disk) => disk.served.of(|disk| disk.reads_total + disk.writes_total),
        }
    }
}
