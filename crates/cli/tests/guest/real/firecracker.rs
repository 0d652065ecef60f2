//! Firecracker: guests restored by its `Uffd` backend, hibernated, and restored again.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;
use zfold_testing::wait_until;

use super::{Vmm, programs, server};
use crate::server::Server;
use crate::survival::kill;

/// A Firecracker and its folder.
struct Firecracker {
    vmm: Vmm,
    folder: TempDir,
}

impl Firecracker {
    fn start(program: &Path) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("api");
        // Its standard output is the guest's alone.
        let log = folder.path().join("log");
        std::fs::File::create(&log).expect("a file");
        let mut command = Command::new(program);
        command.arg("--api-sock").arg(&socket).arg("--log-path").arg(log);
        let vmm = Vmm::start(&mut command);
        wait_until("its API is there", || UnixStream::connect(&socket).is_ok());
        Self { vmm, folder }
    }

    /// Sends a request, which must succeed.
    fn ask(&self, method: &str, path: &str, body: &Value) {
        let mut stream = UnixStream::connect(self.folder.path().join("api")).expect("connected");
        let body = body.to_string();
        let length = body.len();
        write!(stream, "{method} {path} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{body}")
            .expect("sent");
        let mut answer = BufReader::new(stream);
        let (mut status, mut length) = (String::new(), 0);
        answer.read_line(&mut status).expect("an answer");
        loop {
            let mut line = String::new();
            answer.read_line(&mut line).expect("a header");
            match line.trim().split_once(": ") {
                Some(("Content-Length", value)) => length = value.parse().expect("a number"),
                Some(_) => {}
                None => break,
            }
        }
        let mut why = vec![0; length];
        answer.read_exact(&mut why).expect("its body");
        let why = String::from_utf8_lossy(&why);
        assert!(status.contains(" 204 "), "{method} {path}: {status}{why}");
    }

    fn boot(program: &Path, guest: &Path) -> Self {
        let new = Self::start(program);
        new.ask("PUT", "/machine-config", &json!({"vcpu_count": 1, "mem_size_mib": 128}));
        new.ask("PUT", "/boot-source", &json!({"kernel_image_path": guest, "boot_args": ""}));
        new.ask("PUT", "/actions", &json!({"action_type": "InstanceStart"}));
        new
    }

    /// Writes a snapshot, after which the guest stands still; returns its memory and its state.
    fn snapshot(&self, kind: &str) -> [String; 2] {
        let path = |name| self.folder.path().join(name).to_str().expect("text").to_owned();
        let [memory, state] = [path("memory"), path("state")];
        self.ask("PATCH", "/vm", &json!({"state": "Paused"}));
        let how = json!({"snapshot_type": kind, "snapshot_path": state, "mem_file_path": memory});
        self.ask("PUT", "/snapshot/create", &how);
        [memory, state]
    }

    /// Restores a guest from an image, with the state file that is kept with it.
    fn restore(program: &Path, server: &Server, image: &str, socket: &Path) -> Self {
        let new = Self::start(program);
        let state = new.folder.path().join("state");
        let state = state.to_str().expect("text");
        server.done(&["guest", "state", image, state]);
        let memory = json!({"backend_type": "Uffd", "backend_path": socket});
        let what = json!({"snapshot_path": state, "mem_backend": memory, "resume_vm": true});
        new.ask("PUT", "/snapshot/load", &what);
        new
    }
}

/// The socket that a command has printed.
fn socket(said: &str) -> PathBuf {
    said.lines().next().expect("a socket").into()
}

/// Clones read and write on their own, whatever becomes of servers; one of them sleeps twice.
#[test]
fn guests_of_firecracker_are_restored_and_sleep_though_servers_are_killed() {
    let Some(([program], guest)) = programs(["ZFOLD_FIRECRACKER"]) else { return };
    let server = server();
    let mut first = Firecracker::boot(&program, &guest.program);
    assert_eq!(first.vmm.told(b'f'), "filled");
    let [memory, state] = first.snapshot("Full");
    let said = server.done(&["guest", "import", "web", &memory, "--state", &state]);
    let web = socket(&said);
    drop(first);

    let mut clones = [(); 3].map(|()| Firecracker::restore(&program, &server, "web", &web));
    for (clone, is_last) in clones.iter_mut().zip([false, false, true]) {
        // One writes before it has read anything, and one reads while its server is killed.
        if is_last {
            assert_eq!(clone.vmm.told(b'w'), "written");
            kill(&server.stat());
        }
        assert_eq!(clone.vmm.told(b'c'), "right");
        assert_eq!(
            (clone.vmm.told(b'w'), clone.vmm.told(b'c')),
            ("written".into(), "right".into())
        );
    }
    assert_eq!(server.stat()["takeovers_total"], 1);

    // The first clone sleeps, over the image; then what is restored from that, over it.
    let [mut awake, ..] = clones;
    for name in ["asleep", "again"] {
        let [memory, state] = awake.snapshot("Diff");
        let guests = server.stat()["guests"].as_array().expect("a list").clone();
        let newest = guests.iter().filter(|guest| guest["pid"] == awake.vmm.child.id());
        let number = newest.map(|guest| guest["number"].to_string()).next().expect("its guest");
        let words = ["guest", "hibernate", &number, name, &memory, "--state", &state];
        let place = socket(&server.done(&words));
        awake = Firecracker::restore(&program, &server, name, &place);
        assert_eq!(
            (awake.vmm.told(b'c'), awake.vmm.told(b'w')),
            ("right".into(), "written".into())
        );
    }
    // And needs nobody when all its pages are there.
    server.end();
    assert_eq!(awake.vmm.told(b'c'), "right");
}
