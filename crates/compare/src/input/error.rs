//! What can be wrong with an input: one line each, stating the fact and not the remedy.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The most bytes that a packed file may have unpacked; a file that is given unpacked may have any
/// number, which its owner sees.
pub(super) const UNPACKED_MAX: u64 = 256 << 20;

/// Why an input cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum InputError {
    /// The file cannot be opened or read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file should be packed by zstd, and is not or is damaged.
    NotZstd {
        /// The file.
        path: PathBuf,
        /// What the decoder said.
        source: io::Error,
    },
    /// The file is packed, and has more bytes unpacked than are taken.
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// There are no bytes.
    Empty {
        /// The input.
        name: String,
    },
    /// The last page is not whole.
    PartialPage {
        /// The input.
        name: String,
        /// The bytes that there are.
        bytes: u64,
        /// The bytes of a page.
        page_size: usize,
    },
    /// The file is not a whole trace.
    BadTrace {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        flaw: TraceFlaw,
    },
    /// There is no process of this number, or it ended while it was read.
    NoProcess {
        /// The process.
        pid: u32,
    },
    /// The process may not be read by this user.
    NotPermitted {
        /// The process.
        pid: u32,
    },
    /// The process has no anonymous memory: a kernel thread, or one that has ended.
    NoAnonymousMemory {
        /// The process.
        pid: u32,
    },
    /// The memory of the process cannot be read for another reason.
    ProcessUnreadable {
        /// The process.
        pid: u32,
        /// What the system said.
        source: io::Error,
    },
}

/// What is wrong with the bytes of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceFlaw {
    /// It does not begin with `ZTRACE01` and a count.
    NoHeader,
    /// It has another length than its count of records says.
    Length {
        /// The records that the header promises.
        promised: u64,
        /// The bytes that follow the header.
        bytes: u64,
    },
    /// It has no records.
    NoRecords,
    /// A record has an operation that is not known.
    Operation {
        /// The record, from 0.
        record: u64,
        /// The operation it has.
        operation: u8,
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

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, source } => {
                write!(f, "cannot read {}: {}", path.display(), plain(source))
            }
            Self::NotZstd { path, source } => {
                write!(f, "cannot unpack {}: {}", path.display(), plain(source))
            }
            Self::TooLong { path } => {
                write!(f, "{} has more than {} MiB unpacked", path.display(), UNPACKED_MAX >> 20)
            }
            Self::Empty { name } => write!(f, "{name} is empty"),
            Self::PartialPage { name, bytes, page_size } => write!(
                f,
                "{name} ends inside a page: its {bytes} bytes are not a multiple of {page_size}"
            ),
            Self::BadTrace { path, flaw } => {
                write!(f, "{} is not a zswap trace: {flaw}", path.display())
            }
            Self::NoProcess { pid } => write!(f, "there is no process {pid}"),
            Self::NotPermitted { pid } => {
                write!(f, "cannot read the memory of process {pid}: permission denied")
            }
            Self::NoAnonymousMemory { pid } => write!(f, "process {pid} has no anonymous memory"),
            Self::ProcessUnreadable { pid, source } => {
                write!(f, "cannot read the memory of process {pid}: {}", plain(source))
            }
        }
    }
}

impl fmt::Display for TraceFlaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoHeader => write!(f, "it does not begin with ZTRACE01 and a count"),
            Self::Length { promised, bytes } => write!(
                f,
                "its header promises {promised} records of 16 bytes, but {bytes} bytes follow"
            ),
            Self::NoRecords => write!(f, "it has no records"),
            Self::Operation { record, operation } => {
                write!(f, "record {record} has operation {operation}, not 1, 2, 3 or 4")
            }
        }
    }
}

impl Error for InputError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Unreadable { source, .. }
            | Self::NotZstd { source, .. }
            | Self::ProcessUnreadable { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl Error for TraceFlaw {}
