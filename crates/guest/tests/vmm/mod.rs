//! A stand-in for a VMM: a process of its own with memory and a userfaultfd, which does what it is
//! told over a socket. It is the test program itself, started again to run the test `stand_in`.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use zfold_testing::process::Killed;

pub(crate) mod inside;

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;

/// Returns what page `number` of the image of a seed holds: zeros, a text that comes up again, or
/// one of its own.
pub(crate) fn page(seed: u64, number: u64) -> Vec<u8> {
    let kind = match number % 8 {
        0 | 1 => return vec![0; PAGE],
        2 => 1,
        _ => number,
    };
    let words = (0..512_u64).map(|n| ((seed << 32) | (kind << 8) | (n / 7 % 200)).to_le_bytes());
    words.flatten().collect()
}

/// Returns the first word of such a page.
pub(crate) fn first_word(seed: u64, number: u64) -> u64 {
    u64::from_le_bytes(page(seed, number)[..8].try_into().expect("8 bytes"))
}

/// A stand-in at work. It is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Vmm {
    child: Killed,
    control: BufReader<UnixStream>,
}

impl Vmm {
    /// Starts a stand-in with so many pages that connects to `socket` and says what `message`
    /// names; `None` if the system has no userfaultfd, or no such memory, for it.
    pub(crate) fn start(socket: &Path, pages: u64, message: &str) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path().join("control");
        let listener = UnixListener::bind(&at).expect("bound");
        let child = Command::new(std::env::current_exe().expect("a program"))
            .args(["--exact", "stand_in", "--nocapture", "--test-threads=1"])
            .env("ZFOLD_STAND_IN", &at)
            .env("ZFOLD_STAND_IN_SOCKET", socket)
            .env("ZFOLD_STAND_IN_HOW", format!("{pages} {message}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("started");
        let control = BufReader::new(listener.accept().expect("it connects").0);
        let mut vmm = Self { child: Killed(child), control };
        let mut first = String::new();
        vmm.control.read_line(&mut first).expect("a line, or its end");
        match first.trim_end() {
            // It may be killed before it can say so.
            "ready" | "" => Some(vmm),
            told => {
                assert!(told.starts_with("without"), "{told}");
                None
            }
        }
    }

    /// Waits for the answer to what was said.
    pub(crate) fn hear(&mut self) -> String {
        let mut line = String::new();
        self.control.read_line(&mut line).expect("an answer");
        assert!(!line.is_empty(), "it has ended");
        line.trim_end().to_owned()
    }

    /// Has it do something, without waiting for the answer.
    pub(crate) fn say(&mut self, command: &str) {
        self.control.get_mut().write_all(format!("{command}\n").as_bytes()).expect("said");
    }

    /// Has it do something, and returns its answer.
    pub(crate) fn ask(&mut self, command: &str) -> String {
        self.say(command);
        self.hear()
    }

    /// Returns whether an answer comes within some time.
    pub(crate) fn answers_within(&mut self, time: Duration) -> bool {
        self.control.get_ref().set_read_timeout(Some(time)).expect("a limit");
        let come = self.control.fill_buf().is_ok_and(|bytes| !bytes.is_empty());
        self.control.get_ref().set_read_timeout(None).expect("no limit");
        come
    }

    /// Returns its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn kill(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
