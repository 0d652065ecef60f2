//! What a manager does for whoever speaks in the place of its front: users get nothing from the
//! capabilities of zfold's file, though they may execute it as they like.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, IoSlice, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tempfile::TempDir;
use zfold_testing::executable;

use crate::common::{assert_line, needs, skip};
use crate::granted::Granted;
use crate::target::{Target, said, status};

/// A user, and a copy of zfold that may trace everybody as far as its file goes.
struct Capable {
    user: Granted,
    folder: TempDir,
}

impl Capable {
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skip("needs root, and another user");
            return None;
        }
        let user = Granted::new()?;
        let this = Self { folder: user.folder(), user };
        // Not on file systems that ignore capabilities.
        let cat = this.copy("/bin/cat", "cat");
        let shown = this.user.command(cat.to_str()?).arg("/proc/self/status").output().ok()?;
        let has = String::from_utf8_lossy(&shown.stdout).contains("CapEff:\t0000000000080000\n");
        if !has {
            skip("no setcap, or a file system without capabilities");
        }
        has.then_some(this)
    }

    /// Returns a copy of a program with the capability to trace.
    fn copy(&self, program: &str, name: &str) -> PathBuf {
        let copy = self.folder.path().join(name);
        executable::copy(program, &copy, "755");
        // Where there is no setcap, it has none, which is noticed.
        let _ = Command::new("setcap").arg("cap_sys_ptrace+ep").arg(&copy).output();
        copy
    }

    fn zfold(&self) -> Command {
        let zfold = self.copy(env!("CARGO_BIN_EXE_zfold"), "zfold");
        let mut command = self.user.command(zfold.to_str().expect("a path of letters"));
        command.env("XDG_RUNTIME_DIR", self.folder.path());
        command
    }
}

/// Returns when a process began, in ticks.
fn beginning(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let words = stat.rsplit_once(") ").expect("a name").1;
    words.split(' ').nth(19).and_then(|word| word.parse().ok()).expect("a number")
}

/// Has a manager put the process that began then under a limit; returns the first that it says.
fn ask_manager(zfold: &mut Command, pid: u32, began: u64) -> String {
    let (front, manager) = UnixStream::pair().expect("a pair");
    zfold.args(["manage-attached", "--yes", "--limit", "64MiB", &pid.to_string()]);
    zfold.stdin(OwnedFd::from(manager)).stdout(Stdio::null());
    let mut child = zfold.spawn().expect("it starts");
    // It holds the other end, too.
    zfold.stdin(Stdio::null());
    let input = File::open("/dev/null").expect("it is there");
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [input.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
    sendmsg(&front, &[IoSlice::new(b"f")], &mut control, SendFlags::empty()).expect("sent");
    writeln!(&front, "{{\"attach\":[[{pid},{began}]]}}").expect("sent");
    front.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    let mut line = String::new();
    BufReader::new(&front).read_line(&mut line).expect("an answer");
    child.kill().expect("it is ours");
    child.wait().expect("it ends");
    line
}

#[test]
fn a_manager_without_its_front_traces_nobody_else() {
    let Some(capable) = Capable::new() else { return };
    let mut target = Target::start(Command::new("cat"));
    let line = ask_manager(&mut capable.zfold(), target.pid(), beginning(target.pid()));
    assert!(line.contains("failed") && line.contains("belongs to another user"), "{line}");
    assert_eq!(status(target.pid(), "TracerPid"), "0");
    target.echoes();
    assert!(target.finish().success());
}

#[test]
fn a_setuid_program_under_a_limit_of_a_user_has_no_more_rights() {
    let Some(capable) = Capable::new() else { return };
    let id = capable.folder.path().join("id");
    executable::copy("/usr/bin/id", &id, "4755");
    let alone = capable.user.command(id.to_str().expect("a path")).arg("-u").output();
    let alone = alone.expect("it starts");
    needs!(alone.stdout == b"0\n", "a file system without setuid programs");
    let run = capable.zfold().args(["run", "--limit", "64MiB", "--"]).arg(&id).arg("-u").output();
    let run = run.expect("it starts");
    assert!(run.status.success(), "{}", said(&run));
    assert_eq!(String::from_utf8_lossy(&run.stdout), "65534\n");
}

#[test]
fn a_zfold_that_is_setuid_does_nothing() {
    let Some(capable) = Capable::new() else { return };
    let zfold = capable.folder.path().join("zfold");
    executable::copy(env!("CARGO_BIN_EXE_zfold"), &zfold, "4755");
    let mut run = capable.user.command(zfold.to_str().expect("a path of letters"));
    let run = run.args(["run", "--limit", "64MiB", "--", "id", "-u"]).output().expect("it starts");
    assert_line(&run, 1, &["is setuid", "chmod u-s"]);
}
