//! Undoes what an experiment has set up in the system, also if this process is killed.
//!
//! A shell waits for the end of its input, on which this process writes what is to be done, and
//! then does it, the newest first. The input ends when the guard is dropped, and the kernel ends it
//! when the process ends for any reason: there is one way to clean up, which every run of an
//! experiment takes. The shell is in a process group of its own, which Ctrl-C does not reach.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Reads one command a line, each of which goes before the earlier ones.
const COLLECT: &str = "\
trap '' INT TERM HUP
commands=
while IFS= read -r line; do
    commands=$line'
'$commands
done
eval \"$commands\"";

/// Commands that undo what has been set up. Dropping it runs them, the newest first, and waits for
/// their end.
#[derive(Debug)]
pub(crate) struct Cleanup {
    shell: Child,
}

impl Cleanup {
    /// Returns an empty list.
    ///
    /// # Errors
    /// The shell cannot be started.
    pub(crate) fn new() -> io::Result<Self> {
        let mut command = Command::new("sh");
        command.args(["-c", COLLECT]).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { shell: command.spawn()? })
    }

    /// Adds one line of shell, which must do no harm if there is nothing to undo. To be called
    /// before the step that it undoes.
    ///
    /// # Errors
    /// The shell is gone.
    pub(crate) fn promise(&mut self, line: &str) -> io::Result<()> {
        debug_assert!(!line.contains('\n'), "{line}");
        let input = self.shell.stdin.as_mut().expect("it is open until the drop");
        writeln!(input, "{line}")
    }
}

/// Returns a new folder of this user only, and what removes it with its contents.
///
/// # Errors
/// It cannot be made, or there is no shell to remove it.
pub(crate) fn folder() -> io::Result<(PathBuf, Cleanup)> {
    let mut cleanup = Cleanup::new()?;
    let folder = tempfile::Builder::new().prefix("zfold-lab-").tempdir()?;
    // Programs in it may write a little longer than this process lives.
    cleanup.promise(&patiently(&format!("rm -rf {}", quoted(folder.path()))))?;
    Ok((folder.keep(), cleanup))
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        // It has been started, and nothing else waits for it.
        let _ = self.shell.wait();
    }
}

/// Returns `path` as one word of a shell.
pub(crate) fn quoted(text: impl AsRef<OsStr>) -> String {
    let mut word = String::from("'");
    for part in text.as_ref().to_string_lossy().split_inclusive('\'') {
        match part.strip_suffix('\'') {
            Some(part) => write!(word, "{part}'\\''").expect("a String takes all"),
            None => word.push_str(part),
        }
    }
    word + "'"
}

/// Returns shell that tries `command` again for two seconds while it fails.
pub(crate) fn patiently(command: &str) -> String {
    format!("n=0; until {{ {command}; }} || [ $n -ge 40 ]; do n=$((n+1)); sleep 0.05; done")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_newest_is_undone_first_and_a_failure_stops_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("it's a log");
        let mut cleanup = Cleanup::new().unwrap();
        for line in ["echo first", "false", "echo 'second  one'"] {
            cleanup.promise(&format!("{line} >>{}", quoted(&log))).unwrap();
        }
        assert!(!log.exists());
        drop(cleanup);
        assert_eq!(fs::read_to_string(log).unwrap(), "second  one\nfirst\n");
    }

    #[test]
    fn a_folder_goes_with_its_cleanup_also_if_nobody_drops_it() {
        for killed in [false, true] {
            let (path, mut cleanup) = folder().unwrap();
            fs::create_dir(path.join("a")).unwrap();
            fs::write(path.join("a/b"), "").unwrap();
            if killed {
                // As the kernel does when this process is.
                drop(cleanup.shell.stdin.take());
                let most = std::time::Duration::from_secs(60);
                assert!(super::super::child::wait(most, || !path.exists()));
            }
            drop(cleanup);
            assert!(!path.exists());
        }
    }

    #[test]
    fn what_fails_at_first_is_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = quoted(folder.path().join("tries"));
        let mut cleanup = Cleanup::new().unwrap();
        let third = format!("echo >>{path}; [ $(wc -l <{path}) -ge 3 ]");
        cleanup.promise(&patiently(&third)).unwrap();
        drop(cleanup);
        assert_eq!(fs::read_to_string(folder.path().join("tries")).unwrap(), "\n\n\n");
    }
}
