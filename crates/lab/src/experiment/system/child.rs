//! Tools that an experiment runs and waits for.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::experiment::harness::turns::Fault;

/// How often to look whether it does.
const LOOK: Duration = Duration::from_millis(5);

/// Runs a tool to its end and returns what it printed.
///
/// # Errors
/// [`Fault::Missing`] if it is not installed or fails, with its last line.
pub(crate) fn run(command: &mut Command) -> Result<String, Fault> {
    let name = name(command);
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| not_started(&name, &error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = last_line(&String::from_utf8_lossy(&[output.stdout, output.stderr].concat()));
    Err(Fault::Missing(format!("{name} failed: {complaint}")))
}

/// Returns whether `done` came true within `most`.
pub(crate) fn wait(most: Duration, mut done: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if done() {
            return true;
        }
        if start.elapsed() > most {
            return false;
        }
        std::thread::sleep(LOOK);
    }
}

fn name(command: &Command) -> String {
    let program = Path::new(command.get_program());
    program.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn not_started(name: &str, error: &std::io::Error) -> Fault {
    Fault::Missing(match error.kind() {
        std::io::ErrorKind::NotFound => format!("{name} is not installed"),
        _ => format!("{name} cannot be started: {error}"),
    })
}

/// Returns the last line of a program's error output that is not empty.
pub(crate) fn last_line(text: &str) -> String {
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    line.unwrap_or("it does not say why").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing<T: std::fmt::Debug>(result: Result<T, Fault>) -> String {
        match result {
            Err(Fault::Missing(reason)) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_cannot_be_run_is_named_with_the_reason() {
        let none = missing(run(&mut Command::new("no-such-tool")));
        assert_eq!(none, "no-such-tool is not installed");
        let complains = missing(run(Command::new("sh").args(["-c", "echo no memory >&2; exit 1"])));
        assert_eq!(complains, "sh failed: no memory");
        let fails = missing(run(Command::new("sh").args(["-c", "exit 3"])));
        assert_eq!(fails, "sh failed: it does not say why");
        assert_eq!(run(Command::new("echo").arg("text")).unwrap(), "text\n");
    }
}
