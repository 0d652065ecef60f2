//! The errors of an input: one line each, stating the fact and not the remedy.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why an input cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum InputError {
    /// The file cannot be opened or read.
    #[error("cannot read {path}: {}", plain(.source))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// There are no bytes.
    #[error("{name} is empty")]
    Empty {
        /// The input.
        name: String,
    },
    /// There is no process of this number, or it ended while it was read.
    #[error("there is no process {pid}")]
    NoProcess {
        /// The process.
        pid: u32,
    },
    /// The process may not be read by this user.
    #[error("cannot read the memory of process {pid}: permission denied")]
    NotPermitted {
        /// The process.
        pid: u32,
    },
    /// The process has no anonymous memory: a kernel thread, or one that has ended.
    #[error("process {pid} has no anonymous memory")]
    NoAnonymousMemory {
        /// The process.
        pid: u32,
    },
    /// The memory of the process cannot be read for another reason.
    #[error("cannot read the memory of process {pid}: {}", plain(.source))]
    ProcessUnreadable {
        /// The process.
        pid: u32,
        /// The system's error.
        source: io::Error,
    },
}

impl InputError {
    /// Returns the error for a file that cannot be read.
    pub(crate) fn unreadable(path: &Path, source: io::Error) -> Self {
        Self::Unreadable { path: path.to_owned(), source }
    }

    /// Returns the error for a process that cannot be read.
    pub(crate) fn unreadable_process(pid: u32, source: io::Error) -> Self {
        // ESRCH has no kind of its own; reading a process that has just ended gives it.
        const NO_SUCH_PROCESS: i32 = 3;
        match source.kind() {
            io::ErrorKind::NotFound => Self::NoProcess { pid },
            io::ErrorKind::PermissionDenied => Self::NotPermitted { pid },
            _ if source.raw_os_error() == Some(NO_SUCH_PROCESS) => Self::NoProcess { pid },
            _ => Self::ProcessUnreadable { pid, source },
        }
    }
}

/// Returns what `error` says, without the number that the standard library appends.
pub fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let end = text.find(" (os error").unwrap_or(text.len());
    let mut text = text[..end].to_owned();
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    text
}
