//! On a terminal, as a shell's job.

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::common::{needs, skip};
use crate::runs::{can_manage, with_default_signals};

/// How long the screen may stay as it is.
const PATIENCE: Timespec = Timespec { tv_sec: 120, tv_nsec: 0 };

/// A shell with job control on a terminal of its own.
struct Shell {
    child: Child,
    keys: ChildStdin,
    screen: ChildStdout,
    seen: String,
}

impl Shell {
    /// Starts one; says so if there is none.
    fn start() -> Option<Self> {
        let mut command = Command::new("script");
        command.args(["-qec", "bash --norc --noprofile -i", "/dev/null"]);
        let mut command = with_default_signals(&command);
        command.env("PS1", "").env("TERM", "dumb").env("zfold", env!("CARGO_BIN_EXE_zfold"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let has_bash = Command::new("bash").args(["-c", ":"]).status().is_ok();
        let Some(mut child) = command.spawn().ok().filter(|_| has_bash) else {
            skip("no script (package bsdutils) or no bash");
            return None;
        };
        let keys = child.stdin.take().expect("a pipe");
        let screen = child.stdout.take().expect("a pipe");
        let mut shell = Self { child, keys, screen, seen: String::new() };
        // Quoted in two pieces, since the screen also shows what is typed.
        shell.keys("PS1='pro''mpt> '\n");
        Some(shell)
    }

    /// Types a command when the shell waits for one: what is typed before may be thrown away.
    fn command(&mut self, line: &str) {
        self.wait_for("prompt> ");
        self.keys(line);
        self.keys("\n");
    }

    fn keys(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("the shell reads");
    }

    /// Reads until `part` is on the screen, and forgets what came up to it.
    fn wait_for(&mut self, part: &str) {
        let mut bytes = [0; 4096];
        loop {
            if let Some(at) = self.seen.find(part) {
                self.seen.drain(..at + part.len());
                return;
            }
            let mut ready = [PollFd::new(&self.screen, PollFlags::IN)];
            let is_ready = poll(&mut ready, Some(&PATIENCE)).expect("a pipe") > 0;
            assert!(is_ready, "no {part:?} for {} s in {:?}", PATIENCE.tv_sec, self.seen);
            let len = self.screen.read(&mut bytes).expect("a terminal");
            assert!(len > 0, "no {part:?} at the end of {:?}", self.seen);
            self.seen.push_str(&String::from_utf8_lossy(&bytes[..len]));
        }
    }

    /// Runs a script under zfold.
    fn run(&mut self, script: &str) {
        self.command(&format!("\"$zfold\" run --limit 64MiB -- sh -c '{script}'"));
    }

    /// Has a job that has just been stopped listed and continued, which ends with the next line.
    fn continue_stopped(&mut self) {
        self.wait_for("Stopped");
        self.command("jobs; echo \"listed\"=1");
        self.wait_for("Stopped");
        self.wait_for("listed=1");
        self.command("fg; echo \"status\"=$?");
        // The shell shows what it continues; typed before, the rest would be a command for it.
        self.wait_for("run --limit");
        self.keys("later\n");
        self.wait_for("<later>");
        self.wait_for("status=0");
    }

    fn end(mut self) {
        self.command("exit");
        self.child.wait().expect("it ends");
    }
}

#[test]
fn the_keys_of_a_terminal_work_as_without_it() {
    needs!(can_manage());
    let Some(mut shell) = Shell::start() else { return };
    let program = "sh -c 'test -t 0 && test -t 1 && echo re\"\"ady; read line; echo \"<$line>\"'";
    let run = format!("\"$zfold\" run --limit 64MiB -- {program}");
    shell.command(&format!("{run}; echo \"status\"=$?"));
    shell.wait_for("ready");
    shell.keys("typed\n");
    shell.wait_for("<typed>");
    shell.wait_for("status=0");

    shell.command(&run);
    shell.wait_for("ready");
    shell.keys("\x03");
    shell.command("echo \"interrupted\"=$?");
    shell.wait_for("interrupted=130");

    shell.command(&run);
    shell.wait_for("ready");
    shell.keys("\x1a");
    shell.continue_stopped();
    shell.end();
}

#[test]
fn a_job_stops_when_its_program_does() {
    needs!(can_manage());
    let Some(mut shell) = Shell::start() else { return };
    let ignores = "trap \"\" TSTP; echo re\"\"ady; read line; echo \"<$line>\"";
    shell.run(ignores);
    shell.wait_for("ready");
    shell.keys("\x1a");
    shell.keys("typed\n");
    shell.wait_for("<typed>");

    let prepares = "trap \"echo prep\"\"ared; kill -STOP $$\" TSTP; echo re\"\"ady; \
                    until read line; do :; done; echo \"<$line>\"";
    shell.run(prepares);
    shell.wait_for("ready");
    shell.keys("\x1a");
    shell.wait_for("prepared");
    shell.continue_stopped();

    let killed = "echo $$ >process; echo re\"\"ady; read line";
    shell.command("cd \"$(mktemp -d)\"; set -b");
    shell.run(killed);
    shell.wait_for("ready");
    shell.keys("\x1a");
    shell.wait_for("Stopped");
    shell.command("kill -KILL $(cat process); rm -r \"$PWD\"");
    shell.wait_for("Killed");
    shell.keys("\n");
    shell.end();
}

#[test]
fn a_job_in_the_background_stops_when_it_reads() {
    needs!(can_manage());
    let Some(mut shell) = Shell::start() else { return };
    shell.command("set -b; \"$zfold\" run --limit 64MiB -- sh -c 'read line; echo \"<$line>\"' &");
    shell.wait_for("prompt> ");
    shell.wait_for("Stopped");
    // A prompt may or may not follow; an empty command brings one.
    shell.keys("\n");
    shell.command("fg");
    shell.wait_for("run --limit");
    shell.keys("typed\n");
    shell.wait_for("<typed>");
    shell.end();
}
