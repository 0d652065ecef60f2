//! Sandboxes that programs bring along: managed, or named as not managed, and never broken.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::tempdir;

use crate::common::{command, needs, read_report, skip};
use crate::granted::Granted;
use crate::runs::{can_manage, text};

/// Makes 64 MiB and checks them.
const LARGE: &str = "
pages = [bytes([n % 251]) * 4096 for n in range(16384)]
print(all(page[0] == n % 251 for n, page in enumerate(pages)))
";

#[test]
fn programs_in_a_sandbox_of_bubblewrap_are_managed() {
    needs!(can_manage());
    let sandbox = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"];
    let all = ["--unshare-all", "--new-session", "--die-with-parent", "--cap-drop", "ALL"];
    for options in [&[][..], &all] {
        let line = [&sandbox[..], options, &["python3", "-c", LARGE]].concat();
        let alone = Command::new(line[0]).args(&line[1..]).output();
        needs!(
            alone.is_ok_and(|output| output.status.success()),
            "no bwrap (package bubblewrap), no python3, or it may not be used"
        );
        let folder = tempdir().expect("a folder");
        let report = folder.path().join("report");
        let output = command(&["run", "--limit", "24MiB", "--report=json", "--report-file"])
            .arg(&report)
            .args(&line)
            .output()
            .expect("it starts");
        let said = text(&output.stderr);
        let ended = (output.status.code(), text(&output.stdout));
        assert_eq!(ended, (Some(0), "True\n".to_owned()), "{said}");
        assert!(said.is_empty(), "{said}");
        let report = read_report(&report);
        assert!(report["managed"].as_u64() > Some(0) && report["loads"].as_u64() > Some(0));
        assert_eq!(report["unmanaged_total"], 0, "{report}");
    }
}

/// Makes its root a folder of a process that then ends, as Chromium's sandbox does: there is no way
/// back into it. Then it makes 192 MiB, and its child and it check them.
const NOWHERE: &str = "
import os, signal, sys
other = os.fork()
if other == 0:
    signal.pause()
os.chroot(f'/proc/{other}/fdinfo')
os.chdir('/')
os.kill(other, signal.SIGKILL)
os.waitpid(other, 0)
try:
    os.chdir('/')
except ProcessLookupError:
    pages = [bytes([n % 251]) * 4096 for n in range(49152)]
    right = lambda: all(page == bytes([n % 251]) * 4096 for n, page in enumerate(pages))
    child = os.fork()
    if child == 0:
        os._exit(0 if right() else 1)
    print(os.waitpid(child, 0)[1], right())
";

#[test]
fn a_root_that_nobody_can_enter_hinders_nothing() {
    needs!(can_manage());
    let line = ["timeout", "600", "unshare", "--user", "--map-root-user", "python3", "-c", NOWHERE];
    let alone = Command::new(line[0]).args(&line[1..]).output();
    needs!(
        alone.is_ok_and(|output| output.stdout == b"0 True\n"),
        "no user namespaces, no python3, or its /proc has no fdinfo"
    );
    let folder = tempdir().expect("a folder");
    let report = folder.path().join("report");
    let mut run = command(&["run", "--limit", "64MiB", "--report=json", "--report-file"]);
    let output = run.arg(&report).arg("--").args(line).output().expect("it starts");
    let said = text(&output.stderr);
    let ended = (output.status.code(), text(&output.stdout));
    assert_eq!(ended, (Some(0), "0 True\n".to_owned()), "{said}");
    let report = read_report(&report);
    assert_eq!(report["unmanaged_total"], 0, "{report}");
    assert!(report["loads"].as_u64() > Some(0), "{report}");
}

/// Makes 96 MiB, puts itself under a filter that allows everything, and forks twice; all check it.
const FILTERED: &str = "
import ctypes, os, struct
pages = [bytes([n % 251]) * 4096 for n in range(24576)]
right = lambda: all(page == bytes([n % 251]) * 4096 for n, page in enumerate(pages))
right()
libc = ctypes.CDLL(None)
allow = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0x7fff0000))
program = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', 1, ctypes.addressof(allow)))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0
for turn in range(2):
    child = os.fork()
    if child == 0:
        os._exit(0 if right() else 1)
    print(os.waitpid(child, 0)[1], right())
";

/// Makes 32 MiB. Workers that share it have children that stop themselves before they check it.
const STOPPED: &str = "
import os, signal
pages = [bytes([n % 251]) * 4096 for n in range(8192)]
right = lambda: all(page == bytes([n % 251]) * 4096 for n, page in enumerate(pages))
def children():
    ended = []
    for turn in range(10):
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
            os._exit(0 if right() else 1)
        os.waitpid(child, os.WUNTRACED)
        os.kill(child, signal.SIGCONT)
        ended.append(os.waitpid(child, 0)[1])
    return sum(ended)
workers = []
for worker in range(4):
    workers.append(os.fork())
    if workers[-1] == 0:
        os._exit(children() > 0)
print(sum(os.waitpid(worker, 0)[1] for worker in workers), right())
";

/// Runs a Python program as a plain user, who cannot have filters wait, nor be told of forks.
/// Returns the report and what was said, after it has printed what it prints alone; `None` where
/// that cannot be seen, which is said.
fn as_a_plain_user(program: &str, prints: &str) -> Option<(Value, String)> {
    let user = Granted::new()?;
    // That of the system: another may be root's alone.
    let python = "/usr/bin/python3";
    let alone = user.command(python).args(["-c", program]).output();
    if !alone.is_ok_and(|output| output.stdout == prints.as_bytes()) {
        skip("no /usr/bin/python3, or no filters of system calls");
        return None;
    }
    let folder = user.folder();
    let report = folder.path().join("report");
    let mut run = user.command(env!("CARGO_BIN_EXE_zfold"));
    run.args(["run", "--limit", "32MiB", "--report=json", "--report-file"]).arg(&report);
    let output = run.args(["--", python, "-c", program]).output().expect("it starts");
    let said = text(&output.stderr);
    let ended = (output.status.code(), text(&output.stdout));
    assert_eq!(ended, (Some(0), prints.to_owned()), "{said}");
    let report = read_report(&report);
    Some((report, said))
}

#[test]
fn children_of_a_program_under_its_own_filter_have_all_their_pages() {
    let Some((report, said)) = as_a_plain_user(FILTERED, "0 True\n0 True\n") else { return };
    assert!(report["loads"].as_u64() > Some(0), "{report}");
    assert_eq!(report["unmanaged_total"], 2, "{report}");
    assert!(said.contains("is not managed") && said.contains("seccomp filter"), "{said}");
}

#[test]
fn children_that_stop_are_managed_once() {
    let Some((report, said)) = as_a_plain_user(STOPPED, "0 True\n") else { return };
    assert!(report["loads"].as_u64() > Some(0), "{report}");
    assert_eq!(report["managed"], 45, "{report}");
    assert_eq!((report["unmanaged_total"].as_u64(), said.as_str()), (Some(0), ""), "{report}");
}

/// Has 40 MiB filled and summed up by the page's own process.
const PAGE: &str = r#"<html><body><p id="sum">none</p><script>
const all = [];
for (let n = 0; n < 40; n++) all.push(new Float64Array(1 << 17).fill(n));
let sum = 0;
for (const one of all) for (const value of one) sum += value;
document.getElementById("sum").textContent = "sum " + sum;
</script></body></html>"#;
/// 2^17 times the sum of the numbers below 40.
const SUM: &str = "sum 102236160";

/// Serves the page to everybody who asks, until the tests end; returns its address.
fn serve() -> String {
    let address = zfold_testing::net::serve(|mut stream| {
        // The request ends with an empty line.
        let lines = BufReader::new(&stream).lines().map_while(Result::ok);
        lines.take_while(|line| !line.is_empty()).for_each(drop);
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n";
        let length = PAGE.len();
        // A browser may have gone.
        let _ = write!(stream, "{head}Content-Length: {length}\r\n\r\n{PAGE}");
    });
    format!("http://{address}/")
}

#[test]
fn a_browser_with_its_own_sandbox_shows_its_page() {
    let Some(user) = Granted::new() else { return };
    let folder = user.folder();
    // Its sandbox refuses root, and it is given up if it does not end.
    let browse = |command: &mut Command| -> Option<Output> {
        command.args(["timeout", "-s", "KILL", "600", "chromium", "--headless", "--disable-gpu"]);
        command.args(["--no-first-run", "--dump-dom", &serve()]).env("HOME", folder.path());
        command.env("XDG_RUNTIME_DIR", folder.path()).current_dir(folder.path()).output().ok()
    };
    let alone = browse(&mut user.command("env"));
    needs!(
        alone.is_some_and(|output| String::from_utf8_lossy(&output.stdout).contains(SUM)),
        "no chromium, or its sandbox does not work here"
    );
    let report = folder.path().join("report");
    let mut run = user.command(env!("CARGO_BIN_EXE_zfold"));
    run.args(["run", "--limit", "96MiB", "--report=json", "--report-file"]).arg(&report).arg("--");
    let output = browse(&mut run).expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains(SUM), "{said}");
    let report = read_report(&report);
    // The browser itself is managed, and what shows pages if that was attached before it put itself
    // under a filter that nobody may suspend.
    assert!(report["managed"].as_u64() > Some(0), "{report}");
    for one in report["unmanaged"].as_array().expect("a list") {
        assert!(one["reason"].as_str().is_some_and(|why| why.contains("seccomp filter")), "{one}");
    }
    let named = said.contains("(chromium) is not managed") && said.contains("seccomp filter");
    assert_eq!(named, report["unmanaged_total"].as_u64() > Some(0), "{report}{said}");
}
