//! Sandboxes that programs bring along: managed, or named as not managed, and never broken.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::tempdir;

use crate::common::{command, skip};
use crate::runs::{Granted, can_manage, text};

/// Makes 64 MiB and checks them.
const LARGE: &str = "
pages = [bytes([n % 251]) * 4096 for n in range(16384)]
print(all(page[0] == n % 251 for n, page in enumerate(pages)))
";

#[test]
fn programs_in_a_sandbox_of_bubblewrap_are_managed() {
    let test = "programs_in_a_sandbox_of_bubblewrap_are_managed";
    if !can_manage(test) {
        return;
    }
    let sandbox = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"];
    let all = ["--unshare-all", "--new-session", "--die-with-parent", "--cap-drop", "ALL"];
    for options in [&[][..], &all] {
        let line = [&sandbox[..], options, &["python3", "-c", LARGE]].concat();
        let alone = Command::new(line[0]).args(&line[1..]).output();
        if !alone.is_ok_and(|output| output.status.success()) {
            return skip(test, "no bwrap (package bubblewrap), no python3, or it may not be used");
        }
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
        let report = std::fs::read_to_string(report).expect("a report");
        let report: Value = serde_json::from_str(&report).expect("JSON");
        assert!(report["managed"].as_u64() > Some(0) && report["loads"].as_u64() > Some(0));
        assert_eq!(report["unmanaged_total"], 0, "{report}");
    }
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
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // The request ends with an empty line.
            let lines = BufReader::new(&stream).lines().map_while(Result::ok);
            lines.take_while(|line| !line.is_empty()).for_each(drop);
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n";
            let length = PAGE.len();
            // A browser may have gone.
            let _ = write!(stream, "{head}Content-Length: {length}\r\n\r\n{PAGE}");
        }
    });
    format!("http://{address}/")
}

#[test]
fn a_browser_with_its_own_sandbox_shows_its_page_and_is_named() {
    let test = "a_browser_with_its_own_sandbox_shows_its_page_and_is_named";
    let folder = tempdir().expect("a folder");
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(folder.path(), open).expect("a folder of ours");
    let Some(user) = Granted::new(test) else { return };
    // Its sandbox refuses root, and it is given up if it does not end.
    let browse = |command: &mut Command| -> Option<Output> {
        command.args(["timeout", "-s", "KILL", "120", "chromium", "--headless", "--disable-gpu"]);
        command.args(["--no-first-run", "--dump-dom", &serve()]).env("HOME", folder.path());
        command.env("XDG_RUNTIME_DIR", folder.path()).current_dir(folder.path()).output().ok()
    };
    let alone = browse(&mut user.command("env"));
    if !alone.is_some_and(|output| String::from_utf8_lossy(&output.stdout).contains(SUM)) {
        return skip(test, "no chromium, or its sandbox does not work here");
    }
    let report = folder.path().join("report");
    let mut run = user.command(env!("CARGO_BIN_EXE_zfold"));
    run.args(["run", "--limit", "96MiB", "--report=json", "--report-file"]).arg(&report).arg("--");
    let output = browse(&mut run).expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains(SUM), "{said}");
    let report = std::fs::read_to_string(report).expect("a report");
    let report: Value = serde_json::from_str(&report).expect("JSON");
    // The browser itself is managed; what shows pages has filters that nobody may suspend.
    assert!(report["managed"].as_u64() > Some(0), "{report}");
    assert!(report["unmanaged_total"].as_u64() > Some(0), "{report}");
    for one in report["unmanaged"].as_array().expect("a list") {
        assert!(one["reason"].as_str().is_some_and(|why| why.contains("seccomp filter")), "{one}");
    }
    assert!(
        said.contains("(chromium) is not managed") && said.contains("seccomp filter"),
        "{said}"
    );
}
