//! A test's needs, and the line that says what is missing.
//!
//! `.cargo/runner` counts the lines that begin with `SKIPPED:` and repeats them at its end.

use std::fmt::Display;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};

/// Says that the test of this thread, or a part of it, did not run.
pub fn skip(reason: impl Display) {
    // Not by a macro, whose output the test harness would keep to itself.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {}: {reason}", this_test());
}

/// Returns the name of the test of this thread, without its module.
pub fn this_test() -> String {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("a thread");
    name.rsplit("::").next().unwrap_or(name).to_owned()
}

/// Ends a test here unless something holds that it needs. A condition that does not say itself what
/// is missing comes with what is said then.
#[macro_export]
macro_rules! needs {
    ($holds:expr) => {
        let holds: bool = $holds;
        if !holds {
            return;
        }
    };
    ($holds:expr, $reason:expr) => {
        let holds: bool = $holds;
        if !holds {
            return $crate::skip($reason);
        }
    };
}

/// Returns whether the process is root's.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns whether a program is installed.
pub fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// Returns whether all of `programs` are installed; says which one is not.
pub fn installed(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| !has_program(program));
    if let Some(program) = missing {
        skip(format_args!("{program} is not installed"));
    }
    missing.is_none()
}

/// Returns whether a connection over loopback can be made; says so if not. In a new network
/// namespace it is down, which only a connection finds out: a socket can be bound there.
pub fn has_loopback() -> bool {
    let there = TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| TcpStream::connect(listener.local_addr()?))
        .is_ok();
    if !there {
        skip("no loopback network");
    }
    there
}

/// Returns a port at which no process listens now.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    listener.local_addr().expect("an address").port()
}
