//! Processes that end with a test.

use std::io::{BufRead as _, BufReader};
use std::ops::{Deref, DerefMut};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

/// A process that ends with this.
#[derive(Debug)]
pub struct Killed(pub Child);

impl Killed {
    /// Starts something that says a line when it is ready; returns that, or an empty one where it
    /// ends instead.
    pub fn ready(command: &mut Command) -> (Self, String) {
        let (child, line) = ready(command);
        (Self(child), line)
    }
}

fn ready(command: &mut Command) -> (Child, String) {
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let stdout = child.stdout.take().expect("a pipe");
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    (child, line.trim_end().to_owned())
}

impl Deref for Killed {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Killed {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process, the first of its group, which ends with this together with all that it has started.
#[derive(Debug)]
pub struct Group(pub Child);

impl Group {
    /// As [`Killed::ready`].
    pub fn ready(command: &mut Command) -> (Self, String) {
        let (child, line) = ready(command);
        (Self(child), line)
    }

    /// Sends a signal to all, as far as they have not ended.
    pub fn signal(&self, signal: Signal) {
        let _ = kill_process_group(Pid::from_child(&self.0), signal);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.0.wait();
    }
}
