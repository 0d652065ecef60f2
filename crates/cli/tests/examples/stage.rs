//! Where examples run: a folder, with what they name in it, a disk and a run.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use rcgen::{CertificateParams, KeyPair};
use rustix::process::Signal;
use tempfile::{TempDir, tempdir};

use zfold_testing::executable;
use zfold_testing::machines::{self, COMPLETE, COMPLETE_PAUSED, DONE, How, Machine};
use zfold_testing::process::Group;
use zfold_testing::skip::{has_program, skip};
use zfold_testing::{wait_for, wait_until};

/// Programs that take the place of others, with what they do. What they are given must be there.
const STAND_INS: [(&str, &str); 17] = [
    ("sudo", "exec \"$@\""),
    ("systemd-run", "test \"$1\" = --scope && shift && exec \"$@\""),
    ("pidof", "sleep 60 </dev/null >/dev/null 2>&1 & echo $!"),
    ("setfacl", "test \"$3\" = /dev/userfaultfd"),
    ("make", "true"),
    ("node", "test -e \"$1\""),
    ("gcc", "test -e \"$3\""),
    ("nbdcopy", "case \"$*\" in *nbd*) test -e \"$1\" ;; *) exit 1 ;; esac"),
    ("nbdinfo", "case \"$*\" in *nbd*) ;; *) exit 1 ;; esac"),
    ("qemu-img", "case \"$*\" in *nbd*) ;; *) exit 1 ;; esac"),
    ("losetup", "echo /dev/loop77"),
    ("mkfs.ext4", "test \"$1\" = /dev/loop77"),
    ("ch-remote", "case \"$*\" in *=unix:*) ;; *) exit 1 ;; esac"),
    ("batch", "true"),
    ("simulation", "true"),
    ("train", "true"),
    ("test-it", "case \"$*\" in *nbd*) ;; *) exit 1 ;; esac"),
];

/// Files that examples name.
const FILES: [&str; 5] = ["image.raw", "vm.qcow2", "sqlite3.c", "data.bin", "workers.js"];

/// A disk as in the examples of `zfold ctl`: it can write back and recompress.
const DISK: &str = "exec zfold disk --size 1GiB --limit 64MiB \
                    --backing stage.cold --recompress zstd:9";

/// What a disk's client does all the time.
const CLIENT: &str = "while :; do sleep 1; done";

pub(crate) struct Stage {
    folder: TempDir,
    /// The address of the disk.
    uri: String,
    /// The run, where there can be one.
    run: Option<Group>,
    _disk: Group,
    _guests: Group,
}

impl Stage {
    pub(crate) fn set() -> Self {
        let folder = tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        for name in ["programs", "run", "venv/bin", "src/linux", "fpath", "guests"] {
            fs::create_dir_all(at(name)).expect("a folder");
        }
        for name in [".config/fish/completions", "snapshots"] {
            fs::create_dir_all(at(name)).expect("a folder");
        }
        fs::set_permissions(at("run"), fs::Permissions::from_mode(0o700)).expect("a mode");
        for (name, script) in STAND_INS {
            program(&at("programs").join(name), script);
        }
        for name in ["batch", "simulation", "train"] {
            executable::copy(at("programs").join(name), &at(name), "755");
        }
        executable::copy(at("programs/test-it"), &at("test"), "755");
        program(&at("venv/bin/python"), "echo \"$0\"");
        executable::copy(at("venv/bin/python"), &at("programs/python3"), "755");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_zfold"), at("programs/zfold"))
            .expect("a link");
        for name in FILES {
            fs::write(at(name), b"something to compress ".repeat(5000)).expect("written");
        }
        certificates(folder.path());
        for (name, byte) in [("web", 1), ("web-2", 2), ("db", 3)] {
            fs::write(at("snapshots").join(name).with_extension("mem"), [byte; 64 << 10])
                .expect("written");
        }
        let (disk, uri) = Group::ready(&mut shell(folder.path(), DISK));
        let line = format!("exec zfold run --limit 64MiB -- sh -c 'echo ready; {CLIENT}'");
        let (run, said) = Group::ready(&mut shell(folder.path(), &line));
        let run = (said == "ready").then_some(run);
        if run.is_none() {
            skip("zfold run does not work here");
        }
        let line = "exec zfold guest serve --image web=snapshots/web.mem";
        let (guests, said) = Group::ready(&mut shell(folder.path(), line));
        assert!(said.starts_with("web "), "'{line}': {said}");
        let saved = shell(folder.path(), "zfold guest save images.zfs").status();
        assert!(saved.expect("a shell").success(), "images are saved");
        Self { folder, uri, run, _disk: disk, _guests: guests }
    }

    /// Runs an example as people would.
    pub(crate) fn perform(&self, example: &str) {
        if let Some(reason) = self.lacks(example) {
            return skip(format_args!("{example}: {reason}"));
        }
        let line = self.here(example);
        if line == "zfold top" {
            self.watch("script -qec 'stty rows 24 cols 80; zfold top' /dev/null");
        } else if line.contains("--watch") || line.contains("--interval") {
            self.watch(&line);
        } else if line.starts_with("zfold guest serve")
            || (line.starts_with("zfold disk") && !line.contains("--run "))
        {
            self.serve(&line);
        } else if line.starts_with("zfold guest receive") {
            self.receive(&line);
        } else if line.starts_with("zfold guest send") {
            self.send(&line);
        } else {
            self.end(&line);
        }
    }

    /// Sends a machine to what receives one. Several examples use one name.
    fn receive(&self, line: &str) {
        let removed = shell(self.folder.path(), &line.replace("receive", "rm")).output();
        // The first has nothing to remove.
        drop(removed.expect("a shell"));
        let mut child = self.spawn(line);
        self.wait_for_output(line, &mut child);
        let out = fs::read_to_string(self.folder.path().join("out")).expect("text");
        let socket = Path::new(out.lines().next().expect("a socket"));
        assert_eq!(Machine::new(16, 1).send(socket, COMPLETE_PAUSED), DONE, "'{line}'");
        let status = child.0.wait().expect("a child");
        assert!(status.success(), "'{line}': {status}: {}", self.said());
    }

    /// Has a machine sent to one who waits for it.
    fn send(&self, line: &str) {
        let socket = line.split_whitespace().nth(4).expect("a socket");
        // As the shell reads it, below.
        let socket = self.folder.path().join(socket.replace("$XDG_RUNTIME_DIR", "run"));
        let listener = UnixListener::bind(&socket).expect("a socket");
        let asks = line.contains("--on-demand").then_some(1);
        let receiving =
            std::thread::spawn(move || machines::receive(&listener, How { asks, refuses: None }));
        self.end(line);
        let received = receiving.join().expect("no panic").expect("a machine");
        assert_eq!(received.last, COMPLETE, "'{line}'");
        fs::remove_file(socket).expect("its socket");
    }

    /// Returns what an example needs that is not here.
    fn lacks(&self, example: &str) -> Option<&'static str> {
        let needs_run = ["zfold run", "zfold attach", "--pid", "zfold check", ".runs[]"];
        let needs_run = needs_run.iter().any(|part| example.contains(part));
        if needs_run && self.run.is_none() {
            Some("zfold run does not work here")
        } else if example.contains("jq ") && !has_program("jq") {
            Some("no jq")
        } else if example == "zfold top" && !has_program("script") {
            Some("no script (package bsdutils)")
        } else if example.contains("--fuse") && fs::File::open("/dev/fuse").is_err() {
            Some("no /dev/fuse")
        } else {
            None
        }
    }

    /// Returns an example with the paths, numbers and addresses of this stage.
    fn here(&self, example: &str) -> String {
        let folder = self.folder.path().display();
        // With -e, what is not there is an error. It is none that nothing is missing.
        let found = if example.contains("select(") { "" } else { "-e " };
        let (_, socket) = self.uri.split_once("socket=").expect("a Unix socket");
        let control = socket.replace(".nbd", ".sock");
        let run = self.run.as_ref().map_or(0, |run| run.0.id());
        [
            ("/var/tmp/", format!("{folder}/")),
            ("/snapshots/", format!("{folder}/snapshots/")),
            ("/srv/guests", format!("{folder}/guests")),
            ("/run/user/1000/", format!("{folder}/")),
            ("/tmp/restore", format!("{folder}/restore")),
            ("/run/disk.img", format!("{folder}/fuse.img")),
            ("/run/zfold/a/control.sock", control),
            ("0.0.0.0:10809", "127.0.0.1:0".to_owned()),
            ("--pid 4711", format!("--pid {run}")),
            ("--pid 4712", format!("--pid {run}")),
            // The server has no guest of that number.
            ("page-out 17", "page-out".to_owned()),
            ("2GiB 4711", "2GiB $(pidof kernel)".to_owned()),
            ("${fpath[1]}", format!("{folder}/fpath")),
            ("jq ", format!("jq --unbuffered {found}")),
        ]
        .iter()
        .fold(example.to_owned(), |line, (theirs, ours)| line.replace(theirs, ours))
    }

    /// Runs a line that ends by itself, well.
    pub(crate) fn end(&self, line: &str) {
        let mut child = self.spawn(line);
        let status = wait_for(|| child.0.try_wait().expect("a child").ok_or(line));
        assert!(status.success(), "'{line}': {status}: {}", self.said());
    }

    /// Runs a line that serves until it is told to end.
    fn serve(&self, line: &str) {
        let mut child = self.spawn(&format!("exec env XDG_RUNTIME_DIR={} {line}", self.own()));
        self.wait_for_output(line, &mut child);
        child.signal(Signal::TERM);
        let status = child.0.wait().expect("a child");
        assert!(status.success(), "'{line}': {status}: {}", self.said());
    }

    /// Runs a line that shows something for ever.
    fn watch(&self, line: &str) {
        let mut child = self.spawn(line);
        self.wait_for_output(line, &mut child);
        assert!(child.0.try_wait().expect("a child").is_none(), "'{line}' ended: {}", self.said());
    }

    /// Starts a line; what it says on standard error is in a file, and on standard output as well,
    /// in another.
    fn spawn(&self, line: &str) -> Group {
        let mut shell = shell(self.folder.path(), line);
        let file = |name: &str| fs::File::create(self.folder.path().join(name)).expect("a file");
        shell.stdout(file("out")).stderr(file("said")).env("uri", &self.uri);
        shell.env("TERM", "xterm");
        if line.starts_with("script ") {
            // Its end would be that of the terminal.
            shell.stdin(Stdio::piped());
        }
        Group(shell.spawn().expect("a shell"))
    }

    fn wait_for_output(&self, line: &str, child: &mut Group) {
        let out = self.folder.path().join("out");
        wait_until(format_args!("'{line}' shows something"), || {
            let ended = child.0.try_wait().expect("a child");
            let shows = fs::metadata(&out).expect("a file").len() > 0;
            assert!(shows || ended.is_none(), "'{line}': {ended:?}: {}", self.said());
            shows
        });
    }

    /// A runtime directory for a server: statistics are asked of the only one.
    fn own(&self) -> String {
        let own = self.folder.path().join("own");
        fs::create_dir_all(&own).expect("a folder");
        own.display().to_string()
    }

    fn said(&self) -> String {
        let mut said = String::new();
        let file = fs::File::open(self.folder.path().join("said"));
        // It is for a message.
        let _ = file.and_then(|mut file| file.read_to_string(&mut said));
        said
    }
}

/// Returns a shell that runs a line in the folder, as the first of a group of processes.
fn shell(folder: &Path, line: &str) -> Command {
    let mut shell = Command::new("bash");
    let path = std::env::var("PATH").unwrap_or_default();
    shell.args(["-c", &format!("set -o pipefail; {line}")]).current_dir(folder).process_group(0);
    shell.env("PATH", format!("{}:{path}", folder.join("programs").display()));
    shell.env("HOME", folder).env("XDG_RUNTIME_DIR", folder.join("run")).env("USER", "me");
    for name in ["NOTIFY_SOCKET", "XDG_DATA_HOME", "BASH_ENV"] {
        shell.env_remove(name);
    }
    shell.stdin(Stdio::null());
    shell
}

/// Makes a program of a script.
fn program(path: &Path, script: &str) {
    executable::script(path, &format!("#!/bin/sh\n{script}\n"));
}

/// Writes a certificate, its key, and the same certificate as an authority.
fn certificates(folder: &Path) {
    let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    let key = KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("a certificate").pem();
    for (name, text) in
        [("cert.pem", &certificate), ("ca.pem", &certificate), ("key.pem", &key.serialize_pem())]
    {
        fs::write(folder.join(name), text).expect("written");
    }
    fs::set_permissions(folder.join("key.pem"), fs::Permissions::from_mode(0o600)).expect("a mode");
}
