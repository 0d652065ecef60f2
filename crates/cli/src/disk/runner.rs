//! `--run`: a command that lives while the device is served.
//!
//! It is started from a thread of its own, made before the process marks itself as an I/O
//! flusher, because a command would inherit that mark.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use rustix::process::{Pid, Signal, kill_process};
use zfold_pool::Lock;

use super::server::{Event, Server};
use crate::shared::exit::remark;
use crate::shared::secret::without_own_variables;

/// A shell's status for a command that it cannot start.
const NOT_STARTED: u8 = 127;

/// Variables of the command.
type Environment = Vec<(&'static str, String)>;

/// A command that waits to be started, or has been.
#[derive(Debug)]
pub(super) struct Runner {
    start: Sender<Environment>,
    child: Arc<Lock<Child>>,
}

/// How far the command is.
#[derive(Debug, Default)]
struct Child {
    /// The process, while it runs.
    pid: Option<Pid>,
    /// Whether it was asked to end, which it may be before it begins.
    stopped: bool,
}

impl Runner {
    /// Returns a runner for `command`, whose end will be an event.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(super) fn new(command: String, events: Sender<Event>) -> io::Result<Self> {
        let (start, started) = mpsc::channel();
        let child = Arc::default();
        let shared = Arc::clone(&child);
        let run = move || {
            if let Some(status) = run(&command, &started, &shared) {
                // There is no receiver only while the process ends.
                let _ = events.send(Event::Ended(status));
            }
        };
        std::thread::Builder::new().name("zfold-run".to_owned()).spawn(run)?;
        Ok(Self { start, child })
    }

    /// Starts the command, with the addresses of the device in its environment.
    pub(super) fn start(&self, server: &Server) {
        // The thread waits for exactly this.
        let _ = self.start.send(environment(server));
    }

    /// Asks the command to end.
    pub(super) fn stop(&self) {
        let mut child = self.child.lock();
        child.stopped = true;
        if let Some(pid) = child.pid {
            // The end of a command that is gone was reported as an event.
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

/// Waits for the start, runs the command and returns its exit status; `None` without a start.
fn run(command: &str, started: &Receiver<Environment>, state: &Lock<Child>) -> Option<u8> {
    let environment = started.recv().ok()?;
    let mut starting = state.lock();
    if starting.stopped {
        return Some(128 + Signal::TERM.as_raw() as u8);
    }
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command).envs(environment);
    let spawned = without_own_variables(&mut shell).spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => {
            remark(&format!("cannot start a shell for --run: {error}; check that sh is in PATH"));
            return Some(NOT_STARTED);
        }
    };
    starting.pid = Pid::from_raw(child.id() as i32);
    drop(starting);
    let ended = child.wait();
    state.lock().pid = None;
    Some(ended.map_or(NOT_STARTED, status_of))
}

/// Returns the status as a shell gives it: 128 and the signal for a command that died of one.
fn status_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(NOT_STARTED)
}

fn environment(server: &Server) -> Environment {
    let mut environment = vec![("size", server.device.disk.size().to_string())];
    let mut addresses = server.frontends.addresses().iter();
    if let Some(uri) = addresses.find(|address| address.starts_with("nbd")) {
        environment.push(("uri", uri.clone()));
    }
    if let Some(path) = server.frontends.unix() {
        environment.push(("unixsocket", path.to_owned()));
        environment.push(("nbd", format!("nbd:unix:{path}")));
    }
    if let Some(path) = &server.device.plan.args.fuse {
        environment.push(("fuse", path.display().to_string()));
    }
    environment
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_that_of_the_command_or_of_its_signal() {
        let status_in = |state: &Lock<Child>, command: &str| {
            let (start, started) = mpsc::channel();
            start.send(vec![("size", "7".to_owned())]).expect("the other end is here");
            run(command, &started, state)
        };
        let status = |command: &str| status_in(&Lock::default(), command);
        assert_eq!(status("exit $size"), Some(7));
        assert_eq!(status("kill -9 $$"), Some(137));
        assert_eq!(status("true"), Some(0));
        let stopped = Lock::new(Child { pid: None, stopped: true });
        assert_eq!(status_in(&stopped, "exit 7"), Some(143), "never begun");
    }
}
