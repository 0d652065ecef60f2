//! Events of a program that are reported.

/// How the main process of a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// With this code.
    Code(i32),
    /// By this signal; whether it left a core.
    Signal {
        /// Its number.
        number: i32,
        /// Whether there is a core.
        core: bool,
    },
    /// It never began: the error number of exec.
    NotRun(i32),
}

impl Exit {
    /// The exit status that a shell would report.
    #[must_use]
    pub fn status(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal { number, .. } => 128 + number,
            Self::NotRun(libc::ENOENT) => 127,
            Self::NotRun(_) => 126,
        }
    }
}

/// Events that the tracer reports while the program runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum News {
    /// The main process has become the program; this is its number.
    Started(i32),
    /// So many processes that ran before are traced, with so many threads.
    Caught { processes: usize, threads: usize },
    /// A space could not be attached; the memory side knows which and why.
    Refused,
    /// A process is about to trace itself, which is impossible while it is traced here; reported
    /// once.
    TracesItself(i32),
    /// This process is about to be ended, because memory finds no room: why, and the remedy.
    NoRoom(i32, String),
    /// SIGKILL is about to end this process, and did not come from here.
    Killed(i32),
    /// It has been stopped by a signal, as a job of a shell.
    Stopped,
    /// It goes on after that, or has ended meanwhile.
    GoesOn,
    /// It has ended.
    Ended(Exit),
}
