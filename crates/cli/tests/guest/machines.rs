//! Machines by command: a stand-in for cloud-hypervisor sends them and takes them.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;

use zfold_testing::machines::{
    self, ABANDON, COMPLETE, COMPLETE_PAUSED, DONE, How, Machine, Received, Sender, is_there,
};
use zfold_testing::skip::is_root;
use zfold_testing::wait::{PATIENCE, beside};
use zfold_testing::{Random, wait_until};

use crate::common::{needs, skip};
use crate::server::{Server, memory};
use crate::survival::kill;

/// A `zfold guest receive` that waits for a machine.
pub(crate) struct Receiving {
    child: Child,
    lines: BufReader<ChildStdout>,
    pub(crate) socket: PathBuf,
}

impl Receiving {
    pub(crate) fn start(server: &Server, arguments: &[&str]) -> Self {
        let mut child = server.starts(&[&["guest", "receive"], arguments].concat());
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut socket = String::new();
        lines.read_line(&mut socket).expect("a socket");
        let socket = PathBuf::from(socket.trim_end());
        let mut usage = String::new();
        lines.read_line(&mut usage).expect("what to do");
        let address = format!("destination_url=unix:{},local=on", socket.display());
        assert!(usage.contains(&address), "{usage}");
        Self { child, lines, socket }
    }

    /// Waits until it ends; returns whether it succeeded, and what it printed.
    pub(crate) fn ends(mut self) -> (bool, String) {
        let mut said = String::new();
        self.lines.read_to_string(&mut said).expect("text");
        self.child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
        assert!(!self.socket.exists(), "its socket is left");
        (self.child.wait().expect("it ends").success(), said)
    }
}

fn save(server: &Server, machine: &Machine, arguments: &[&str]) -> String {
    let receiving = Receiving::start(server, arguments);
    assert_eq!(machine.send(&receiving.socket, COMPLETE_PAUSED), DONE);
    let (done, said) = receiving.ends();
    assert!(done, "{said}");
    said
}

/// Has a machine sent to a stand-in; returns what was printed, and the machine.
fn restore(server: &Server, arguments: &[&str], asks: Option<u64>) -> (String, Received) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("restore");
    let listener = UnixListener::bind(&path).expect("bound");
    let how = How { asks, refuses: None };
    let receiving = thread::spawn(move || machines::receive(&listener, how));
    let (name, more) = arguments.split_first().expect("a name");
    let socket = path.to_str().expect("text");
    let said = server.done(&[&["guest", "send", *name, socket][..], more].concat());
    (said, receiving.join().expect("no panic").expect("a machine"))
}

fn same(one: &Machine, other: &Machine) {
    assert!(one.config == other.config && one.state == other.state, "the documents differ");
    assert!(one.contents() == other.contents(), "the memory differs");
}

fn exported(server: &Server, name: &str, folder: &Path) -> Vec<u8> {
    let path = folder.join(name);
    server.done(&["guest", "export", name, path.to_str().expect("text")]);
    fs::read(path).expect("a file")
}

#[test]
fn a_machine_is_saved_listed_and_restored_though_servers_are_killed() {
    let server = Server::start(tempfile::tempdir().expect("a folder"), &[], 0);
    let machine = Machine::new(2000, 1);
    let receiving = Receiving::start(&server, &["web"]);
    let mode = fs::metadata(&receiving.socket).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(machine.send(&receiving.socket, COMPLETE), DONE);
    let (done, said) = receiving.ends();
    assert!(done && said.contains("681 of 2040 pages stored"), "{said}");
    // The process that stands by has it, too.
    kill(&server.stat());
    let stat = server.stat();
    assert_eq!(stat["takeovers_total"], 1);
    let bytes = (machine.config.len() + machine.state.len()) as u64;
    assert_eq!(stat["images"][0]["machine_bytes"], bytes);
    let list = server.done(&["guest", "list"]);
    assert!(list.lines().nth(1).is_some_and(|line| line.contains("machine")), "{list}");
    assert!(exported(&server, "web", server.folder.path()) == machine.contents());

    let (said, received) = restore(&server, &["web", "--resume"], None);
    assert!(said.contains("681 of 2040 pages written"), "{said}");
    assert_eq!(received.last, COMPLETE);
    same(&received.machine, &machine);
    let (said, received) = restore(&server, &["web", "--on-demand"], Some(10));
    assert!(said.contains("2040 pages come on demand"), "{said}");
    assert_eq!((received.last, server.stat()["on_demand"].as_u64()), (COMPLETE_PAUSED, Some(1)));
    server.refused(&["guest", "rm", "web"], &["web is used"]);
    wait_until("all pages are there", || received.machine.contents() == machine.contents());
    drop(received.faults);
    wait_until("it is not in use", || server.run(&["guest", "rm", "web"]).status.success());
    assert_eq!(server.stat()["images"].as_array().map(Vec::len), Some(0));
    server.end();
}

/// What a machine waits for comes from whichever server is there, and what it has written stays.
#[test]
fn a_machine_on_demand_outlives_its_servers() {
    let server = Server::start(tempfile::tempdir().expect("a folder"), &[], 0);
    let machine = Machine::new(12_000, 3);
    save(&server, &machine, &["web"]);
    let (_, received) = restore(&server, &["web", "--on-demand", "--resume"], Some(1));
    let mut faults = received.faults.expect("a connection");
    let slot = &received.machine.slots[0];
    let write = |bytes: &[u8], at| slot.file.write_all_at(bytes, slot.from + at).expect("written");
    write(&[7; 4096], 0);
    // It asks all the time, so servers are killed at any point of an answer.
    faults.0.0.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let mut random = Random::new(5);
    let ask = || {
        let page = random.word() % 12_000;
        assert_eq!(faults.ask(slot.gpa + page * 4096, 4096), DONE, "page {page}");
        assert!(is_there(slot, page), "page {page}");
    };
    beside(ask, || {
        for round in 1..=5 {
            kill(&server.stat());
            wait_until("another one has taken over", || server.stat()["takeovers_total"] == round);
            wait_until("it goes on there", || server.stat()["on_demand"] == 1);
        }
    });
    let all = || {
        received
            .machine
            .slots
            .iter()
            .all(|slot| (0..slot.bytes / 4096).all(|page| is_there(slot, page)))
    };
    wait_until("all pages are there", all);
    let mut wanted = machine.contents();
    wanted[..4096].fill(7);
    assert!(received.machine.contents() == wanted, "the memory differs");
    drop(faults);
    wait_until("it is not in use", || server.stat()["on_demand"] == 0);
    server.done(&["guest", "rm", "web"]);
    server.end();
}

/// A server that ends goes on until machines have all pages.
#[test]
fn machines_survive_in_a_file_and_a_server_that_ends_gives_them_all_pages() {
    let folder = tempfile::tempdir().expect("a folder");
    let saved = folder.path().join("images.zfs");
    let arguments = ["--save", saved.to_str().expect("text")];
    let server = Server::start(tempfile::tempdir().expect("a folder"), &arguments, 0);
    let machine = Machine::new(3000, 2);
    save(&server, &machine, &["web"]);
    let (_, received) = restore(&server, &["web", "--on-demand", "--resume"], Some(1));
    let ending = thread::spawn(move || server.end());
    let mut faults = received.faults.expect("a connection");
    for slot in &received.machine.slots {
        let pages = (0..slot.bytes).step_by(4096);
        pages.for_each(|at| assert_eq!(faults.ask(slot.gpa + at, 4096), DONE));
    }
    same(&received.machine, &machine);
    drop(faults);
    let runtime = ending.join().expect("it ends");
    assert_eq!(fs::read_dir(runtime.path().join("zfold")).expect("a folder").count(), 0);

    let server = Server::start(runtime, &["--load", arguments[1]], 0);
    let (_, received) = restore(&server, &["web"], None);
    same(&received.machine, &machine);
    // What the machine changes costs what it changes.
    let slot = &received.machine.slots[0];
    slot.file.write_all_at(&[7; 4096], slot.from).expect("written");
    let said = save(&server, &received.machine, &["later", "--base", "web"]);
    assert!(said.contains("1 of 3040 pages stored"), "{said}");
    server.refused(&["guest", "rm", "web"], &["used by the image later"]);
    server.end();
}

#[test]
fn what_cannot_be_saved_or_restored_is_refused_in_a_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a.mem");
    memory(&file, 100, 1);
    let image = format!("plain={}", file.display());
    let sockets = folder.path().join("sockets");
    fs::create_dir(&sockets).expect("made");
    let arguments = ["--image", &image, "--sockets", sockets.to_str().expect("text")];
    let server = Server::start(tempfile::tempdir().expect("a folder"), &arguments, 1);
    let nobody = folder.path().join("nobody");
    let nobody = nobody.to_str().expect("text");
    server.refused(&["guest", "receive", "plain"], &["already an image plain"]);
    server.refused(&["guest", "receive", "a/b"], &["the name of an image"]);
    server.refused(&["guest", "receive", "web", "--base", "x"], &["no image x"]);
    server.refused(&["guest", "send", "x", nobody], &["no image x"]);
    server.refused(&["guest", "send", "plain", nobody], &["is not a machine", "backend_path"]);

    let receiving = Receiving::start(&server, &["web", "--timeout", "100ms"]);
    let (done, said) = receiving.ends();
    assert!(!done && said.contains("no VMM has connected within 0.1 s"), "{said}");

    let machine = Machine::new(100, 1);
    let receiving = Receiving::start(&server, &["web"]);
    assert_eq!(receiving.socket, sockets.join("web.receive"));
    server.refused(&["guest", "receive", "web"], &["a machine web is awaited already"]);
    let mut peer = Sender::connect(&receiving.socket);
    assert!(machine.send_to(&mut peer).iter().all(|&answer| answer == DONE));
    assert_eq!(peer.ask(ABANDON, &[], None), DONE);
    let (done, said) = receiving.ends();
    assert!(!done && said.contains("abandoned") && said.lines().count() == 1, "{said}");
    assert_eq!(server.stat()["images"].as_array().map(Vec::len), Some(1));
    // The name is free.
    save(&server, &machine, &["web"]);
    server.refused(&["guest", "send", "web", nobody], &["receive-migration first"]);
    server.end();
}

/// Listens at a path, says so, and waits for a first byte.
const LISTENER: &str = "\
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
s.listen()
print('ready', flush=True)
print(s.accept()[0].recv(1), flush=True)";

/// In a folder where all may write, another user may listen first.
#[test]
fn no_other_user_gets_a_machine() {
    needs!(is_root(), "needs root, and another user");
    let server = Server::start(tempfile::tempdir().expect("a folder"), &[], 0);
    save(&server, &Machine::new(10, 1), &["web"]);
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("its mode");
    let socket = folder.path().join("restore");
    let mut listener = Command::new("setpriv");
    listener.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    // One that other users may execute, too.
    let listener = listener.args(["/usr/bin/python3", "-c", LISTENER]).arg(&socket);
    let listener = listener.stdout(Stdio::piped()).spawn();
    let Ok(mut listener) = listener else { return skip("no setpriv") };
    let mut lines = BufReader::new(listener.stdout.take().expect("a pipe")).lines();
    if lines.next().and_then(Result::ok).is_none_or(|line| line != "ready") {
        return skip("no /usr/bin/python3");
    }
    let path = socket.to_str().expect("text");
    server.refused(&["guest", "send", "web", path], &["user 65534 listens at", "run the VMM as"]);
    assert_eq!(lines.next().expect("a line").expect("text"), "b''", "it has got something");
    listener.wait().expect("it ends");
    server.end();
}

/// A command that is gone, and so waits no longer, leaves no socket.
#[test]
fn a_machine_for_which_nobody_waits_is_not_awaited() {
    let server = Server::start(tempfile::tempdir().expect("a folder"), &[], 0);
    let mut receiving = Receiving::start(&server, &["web"]);
    receiving.child.kill().expect("it runs");
    receiving.child.wait().expect("it ends");
    wait_until("its socket is gone", || !receiving.socket.exists());
    save(&server, &Machine::new(10, 1), &["web"]);
    server.end();
}
