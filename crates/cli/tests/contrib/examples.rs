//! The examples of docs/use/ci.md.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::{TempDir, tempdir};
use zfold_testing::wait::PATIENCE;

use crate::common::{needs, skip, zfold};
use crate::contrib;
use crate::needs::ready;

/// Returns a copy of an example, with the program that is tested in a folder of its own beside.
fn copied(name: &str) -> TempDir {
    let folder = tempdir().expect("a folder");
    fs::create_dir(folder.path().join("bin")).expect("a folder");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_zfold"), folder.path().join("bin/zfold"))
        .expect("a link");
    for file in fs::read_dir(contrib("examples").join(name)).expect("an example").flatten() {
        fs::copy(file.path(), folder.path().join(file.file_name())).expect("copied");
    }
    folder
}

/// Runs a command in a copy; says so if it is not installed, or nothing can be run under a limit.
fn perform(folder: &Path, line: &[&str]) -> Option<Output> {
    if !ready(&line[..1]) {
        return None;
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(line[0]);
    command.args(&line[1..]).current_dir(folder);
    command.env("PATH", format!("{}:{path}", folder.join("bin").display()));
    let output = command.output().expect("it is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line:?}: {}: {said}", output.status);
    Some(output)
}

#[test]
fn npm_runs_tests_in_less_memory() {
    let folder = copied("node");
    let Some(output) = perform(folder.path(), &["npm", "test"]) else { return };
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(out.contains("all records are right"), "{out}");
    let report = fs::read_to_string(folder.path().join("report.txt")).expect("a report");
    assert!(report.contains("node ended with status 0"), "{report}");
}

#[test]
fn make_puts_one_step_under_a_limit() {
    let folder = copied("make");
    let Some(output) = perform(folder.path(), &["make"]) else { return };
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(out.contains("150000 rows, the last is name 149999"), "{out}");
    assert!(out.contains("zfold run --limit 64MiB -- cc"), "{out}");
}

#[test]
fn the_units_are_ones_that_systemd_takes() {
    let drop_in = fs::read_to_string(contrib("examples/zfold-run.conf")).expect("text");
    // Programs of packages that are not installed here.
    let drop_in = drop_in
        .replace("/usr/bin/zfold", env!("CARGO_BIN_EXE_zfold"))
        .replace("SupplementaryGroups=zfold", "SupplementaryGroups=root");
    let folder = tempdir().expect("a folder");
    fs::write(
        folder.path().join("example.service"),
        "[Service]\nType=notify\nExecStart=/bin/true\n",
    )
    .expect("written");
    fs::create_dir(folder.path().join("example.service.d")).expect("a folder");
    fs::write(folder.path().join("example.service.d/zfold.conf"), drop_in).expect("written");
    let mut units = vec!["zfold-disk@.service", "zfold-disk@.socket", "zfold-guest@.service"];
    for unit in &units {
        let text = fs::read_to_string(contrib("systemd").join(unit)).expect("a unit");
        let text = text.replace("/usr/bin/zfold", env!("CARGO_BIN_EXE_zfold"));
        fs::write(folder.path().join(unit), text).expect("written");
    }
    // Here with the drop-in.
    units.push("example.service");
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]).args(units.iter().map(|unit| folder.path().join(unit)));
    match verify.env("SYSTEMD_UNIT_PATH", format!("{}:", folder.path().display())).output() {
        Ok(output) => {
            // What they name of systemd's own is not looked at.
            let said = String::from_utf8_lossy(&output.stderr);
            let is_ours = said.contains("zfold-") || said.contains("zfold.conf");
            assert!(output.status.success() && !is_ours, "{said}");
        }
        Err(error) => skip(format!("systemd-analyze: {error}")),
    }
}

/// What systemd does with a service that has the drop-in, without systemd: it starts the command,
/// waits for `READY=1` on its socket, and ends the process that it started.
#[test]
fn a_service_with_the_drop_in_says_that_it_is_ready_and_is_stopped() {
    needs!(ready(&["redis-server"]));
    let drop_in = fs::read_to_string(contrib("examples/zfold-run.conf")).expect("text");
    let mut lines = drop_in.lines().filter_map(|line| line.strip_prefix("ExecStart="));
    let line = lines.next_back().expect("a command");
    let mut words = line.split(' ');
    assert_eq!(words.next(), Some("/usr/bin/zfold"));
    let folder = tempdir().expect("a folder");
    let socket = UnixDatagram::bind(folder.path().join("notify")).expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("set");
    let mut service = Command::new(env!("CARGO_BIN_EXE_zfold"));
    // Its configuration is the package's, which need not be here.
    service.args(words.filter(|word| *word != "/etc/redis/redis.conf"));
    service.args([
        "--supervised",
        "systemd",
        "--port",
        "0",
        "--unixsocket",
        "socket",
        "--save",
        "",
    ]);
    service.current_dir(&folder).env("NOTIFY_SOCKET", folder.path().join("notify"));
    service.stdout(Stdio::null());
    let mut service = service.spawn().expect("it starts");
    let mut told = [0; 4096];
    loop {
        let len = match socket.recv(&mut told) {
            // The tests were stopped for a while.
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            len => len.expect("it says that it is ready"),
        };
        if String::from_utf8_lossy(&told[..len]).lines().any(|line| line == "READY=1") {
            break;
        }
    }
    let stopped = Command::new("kill").args(["-TERM", &service.id().to_string()]).status();
    assert!(stopped.expect("kill").success());
    let status = service.wait().expect("it ends");
    assert!(status.success(), "{status}");
}

/// Returns the documents of a file of YAML; says so where nothing here reads YAML.
fn yaml(name: &str) -> Option<Vec<Value>> {
    let script = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(sys.stdin))))";
    let file = fs::File::open(contrib(name)).expect("a file");
    let read = Command::new("python3").args(["-c", script]).stdin(file).output();
    match read {
        Ok(output) if output.status.success() => {
            Some(serde_json::from_slice(&output.stdout).expect("JSON"))
        }
        Ok(output) if String::from_utf8_lossy(&output.stderr).contains("No module named") => {
            skip("no python3-yaml");
            None
        }
        Ok(output) => panic!("{name}: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => {
            skip(format!("python3: {error}"));
            None
        }
    }
}

#[test]
fn the_pod_asks_for_what_a_run_needs() {
    let Some(documents) = yaml("examples/kubernetes.yaml") else { return };
    let [plugin, pod] = &documents[..] else { panic!("{documents:?}") };
    let args = &plugin["spec"]["template"]["spec"]["containers"][0]["args"];
    assert_eq!(args[0], "--device");
    let device: Value = serde_json::from_str(args[1].as_str().expect("text")).expect("JSON");
    assert_eq!(device["groups"][0]["paths"][0]["path"], "/dev/userfaultfd");
    let container = &pod["spec"]["containers"][0];
    let resource = format!("squat.ai/{}", device["name"].as_str().expect("a name"));
    assert_eq!(container["resources"]["limits"][&resource], 1);
    assert_eq!(container["securityContext"]["capabilities"]["add"][0], "SYS_PTRACE");
    // Its command is one that zfold takes.
    let mut command = container["command"].as_array().expect("a command").iter();
    assert_eq!(command.next(), Some(&"zfold".into()));
    let line: Vec<_> = command.map(|word| word.as_str().expect("text")).collect();
    let output = zfold(&[&line[..], &["true"]].concat());
    assert!([Some(0), Some(125)].contains(&output.status.code()), "{output:?}");
}

#[test]
fn the_image_starts_its_program_under_a_limit() {
    let file = fs::read_to_string(contrib("examples/Dockerfile")).expect("text");
    let words = |instruction: &str| -> Vec<String> {
        let line = file.lines().find_map(|line| line.strip_prefix(instruction));
        serde_json::from_str(line.expect("it is there")).expect("JSON")
    };
    let (entry, program) = (words("ENTRYPOINT "), words("CMD "));
    assert_eq!((&*entry[0], &*program[0]), ("zfold", "node"));
    let entry: Vec<_> = entry[1..].iter().map(String::as_str).collect();
    let output = zfold(&[&entry[..], &["true"]].concat());
    assert!([Some(0), Some(125)].contains(&output.status.code()), "{output:?}");
    assert!(file.contains("--device /dev/userfaultfd --cap-add SYS_PTRACE"));
}
