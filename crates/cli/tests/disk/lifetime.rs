//! From start to end: addresses, signals, --run, snapshots, and what a killed server leaves.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::tempdir;
use zfold_testing::nbd::Plain as Client;

use crate::common::{assert_line, needs};
use crate::server::{Server, noise, page, text, zfold};

#[test]
fn what_is_written_is_read_and_the_sockets_go_with_the_server() {
    let runtime = tempdir().expect("a directory");
    let server = Server::start(runtime.path(), &["--size", "64MiB"]);
    assert!(server.addresses[0].starts_with("nbd+unix:///?socket="), "{:?}", server.addresses);
    let mode = fs::metadata(server.socket()).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let mut client = server.connect("");
    assert_eq!(client.size, 64 << 20);
    client.write(4096, &page(1)).expect("written");
    client.write(10_000, b"in the middle").expect("written");
    assert_eq!(client.read(4096, 4096), page(1));
    assert_eq!(client.read(10_000, 13), b"in the middle");
    client.trim(4096, 4096);
    assert_eq!(client.read(4096, 4096), [0; 4096]);

    let directory = runtime.path().join("zfold");
    assert_eq!(fs::read_dir(&directory).expect("a directory").count(), 2);
    assert_eq!(server.stop(), (Some(0), Vec::new()));
    assert_eq!(fs::read_dir(&directory).expect("a directory").count(), 0);
}

#[test]
fn settings_of_any_type_are_taken_as_flags() {
    let runtime = tempdir().expect("a directory");
    let backing = runtime.path().join("cold");
    let device = ["--size", "4MiB", "--sector", "512", "--name", "first"];
    let memory = ["--codec", "zstd:3", "--recompress", "zstd:9,page:deep", "--allocator", "z3fold"];
    let limits = ["--limit", "2MiB", "--max-connections", "3"];
    let cold = ["--backing", text(&backing), "--writeback-limit", "1MiB"];
    let more = ["--idle-after", "10min", "--backing-size", "2MiB", "--dedup"];
    let all = [&device[..], &memory, &limits, &cold, &more, &["--shrinker", "--read-only"]];
    let server = Server::start(runtime.path(), &all.concat());
    let stat = server.stat();
    let disk = &stat["disks"][0];
    assert_eq!((&disk["sector_bytes"], &disk["name"]), (&512.into(), &"first".into()));
    assert_eq!((&disk["codec"], &disk["allocator"]), (&"zstd:3".into(), &"z3fold".into()));
    assert_eq!((&disk["size_bytes"], &disk["read_only"]), (&(4 << 20).into(), &true.into()));
    let knobs = server.ask(&["get"]);
    assert_eq!(knobs["mem_limit"], 2 << 20);
    assert_eq!(knobs["idle_after"], 600);
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn run_gives_the_addresses_and_leaves_with_the_status() {
    let runtime = tempdir().expect("a directory");
    let status = |command: &str| {
        let line = ["disk", "--no-mlock", "--size", "1MiB", "--run", command];
        zfold(runtime.path(), &line).output().expect("the program starts")
    };
    let output = status("test -S \"$unixsocket\" && echo $uri $nbd $size; exit 7");
    assert_eq!(output.status.code(), Some(7));
    let told = String::from_utf8(output.stdout).expect("text");
    let words: Vec<_> = told.split_whitespace().collect();
    assert!(words[0].starts_with("nbd+unix:///?socket=/"), "{told}");
    assert!(words[1].starts_with("nbd:unix:/") && words[2] == "1048576", "{told}");
    assert_eq!(status("kill -9 $$").status.code(), Some(137));
    assert_eq!(status("true").status.code(), Some(0));
    assert_eq!(status("no-such-command 2>&-").status.code(), Some(127));
}

#[test]
fn a_signal_ends_the_command_of_run_and_a_second_one_the_server_at_once() {
    let runtime = tempdir().expect("a directory");
    let start = |command: &str| {
        let line = ["disk", "--no-mlock", "--size", "1MiB", "--run", command];
        let mut child = zfold(runtime.path(), &line);
        child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = child.spawn().expect("the program starts");
        let mut line = String::new();
        let stdout = child.stdout.as_mut().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("the command has started");
        let pid = Pid::from_raw(child.id() as i32).expect("a process");
        // Waiting for a child would close what its command waits for.
        let stdin = child.stdin.take();
        (child, pid, stdin)
    };
    let (mut child, pid, _stdin) = start("echo started; read line");
    kill_process(pid, Signal::TERM).expect("it runs");
    assert_eq!(child.wait().expect("it ends").code(), Some(128 + 15));

    let (mut child, pid, stdin) =
        start("trap 'echo stays >&2' TERM; echo started; read line; read line");
    kill_process(pid, Signal::TERM).expect("it runs");
    // Only once the command has seen the first signal, the second one is another.
    let mut stderr = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    stderr.read_line(&mut line).expect("a line");
    assert_eq!(line, "stays\n");
    kill_process(pid, Signal::INT).expect("it runs");
    assert_eq!(child.wait().expect("it ends").code(), Some(1));
    drop(stdin);
}

#[test]
fn contents_are_saved_at_the_end_and_loaded_again() {
    let runtime = tempdir().expect("a directory");
    let file = runtime.path().join("disk.zfs");
    let both = ["--load", text(&file), "--save", text(&file)];
    let server = Server::start(runtime.path(), &[&["--size", "16MiB"], &both[..]].concat());
    server.heard("starts empty");
    let mut client = server.connect("");
    client.write(0, &page(1)).expect("written");
    client.write(8 << 20, &noise(2)).expect("written");
    client.write(9 << 20, &[5; 4096]).expect("written");
    assert_eq!(server.stop().0, Some(0));

    // The size is that of the snapshot, the codec may be another one.
    let server = Server::start(runtime.path(), &[&["--codec", "zstd"], &both[..]].concat());
    let mut client = server.connect("");
    assert_eq!(client.size, 16 << 20);
    assert_eq!(client.read(0, 4096), page(1));
    assert_eq!(client.read(8 << 20, 4096), noise(2));
    assert_eq!(client.read(9 << 20, 4096), [5; 4096]);
    assert_eq!(server.stat()["disks"][0]["zswap"]["stored_pages"], 3);
    assert_eq!(server.stop().0, Some(0));

    let refused = |arguments: &[&str], part: &str| {
        let line = [&["disk", "--no-mlock"], arguments].concat();
        let output = zfold(runtime.path(), &line).output().expect("the program starts");
        assert_line(&output, 1, &[part, text(&file)]);
    };
    refused(&["--size", "8MiB", "--load", text(&file)], "a device of 16MiB");
    std::os::unix::fs::symlink("/dev/null", runtime.path().join("null")).expect("a link");
    for path in ["/dev/null", text(&runtime.path().join("null"))] {
        let line = ["disk", "--no-mlock", "--size", "1MiB", "--save", path];
        let output = zfold(runtime.path(), &line).output().expect("the program starts");
        assert_line(&output, 1, &[path, "not a regular file", "--save"]);
    }
    let mut bytes = fs::read(&file).expect("a snapshot");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, &bytes).expect("written");
    refused(&["--size", "16MiB", "--load", text(&file)], "damaged");
    fs::remove_file(&file).expect("removed");
    refused(&["--size", "16MiB", "--load", text(&file)], "cannot load");
}

#[test]
fn a_damaged_page_costs_that_page_alone() {
    let runtime = tempdir().expect("a directory");
    let (cold, saved) = (runtime.path().join("cold"), runtime.path().join("saved"));
    let files = ["--backing", text(&cold), "--save", text(&saved)];
    let server = Server::start(runtime.path(), &[&["--size", "1MiB"], &files[..]].concat());
    let mut client = server.connect("");
    (0..8).for_each(|at| client.write(at * 4096, &noise(at as u32)).expect("written"));
    server.ask(&["save", text(&saved)]);
    assert_eq!(server.ask(&["writeback", "type=lru"])["pages"], 8);
    let damaged = fs::OpenOptions::new().write(true).open(&cold).expect("opened");
    // In the middle of some page.
    damaged.write_all_at(&[0xFF; 64], 8192).expect("written");
    let before = fs::read(&saved).expect("a snapshot");
    drop(client);
    let (status, said) = server.stop();
    assert_eq!(status, Some(1));
    let line = said.last().expect("a line");
    assert!(line.contains("1 pages cannot be read") && line.contains("saved.incomplete"), "{line}");
    assert!(fs::read(&saved).expect("a snapshot") == before, "the file of before is there");

    let incomplete = runtime.path().join("saved.incomplete");
    let server = Server::start(runtime.path(), &["--load", text(&incomplete)]);
    server.heard("1 of the 8 pages");
    let mut client = server.connect("");
    let lost: Vec<_> = (0..8).filter(|at| client.try_read(at * 4096, 4096).is_err()).collect();
    assert_eq!(lost.len(), 1, "{lost:?}");
    for at in (0..8).filter(|at| *at != lost[0]) {
        assert_eq!(client.read(at * 4096, 4096), noise(at as u32));
    }
    client.write(lost[0] * 4096, &page(1)).expect("written");
    assert_eq!(client.read(lost[0] * 4096, 4096), page(1));
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn a_killed_server_leaves_sockets_that_the_next_one_replaces() {
    let runtime = tempdir().expect("a directory");
    let (socket, control) = (runtime.path().join("a.nbd"), runtime.path().join("a.control"));
    let nbd = format!("unix:{}", socket.display());
    let line = ["--size", "1MiB", "--nbd", &nbd, "--control", text(&control)];
    Server::start(runtime.path(), &line).kill();
    assert!(socket.exists() && control.exists());
    let server = Server::start(runtime.path(), &line);
    assert_eq!(server.connect("").size, 1 << 20);

    let line = [&["disk", "--no-mlock"], &line[..]].concat();
    let output = zfold(runtime.path(), &line).output().expect("the program starts");
    assert_line(&output, 1, &["a.control", "already"]);
    assert_eq!(Client::connect(&socket, "").size, 1 << 20, "the first one is unharmed");

    // Those in the runtime directory are swept up.
    Server::start(runtime.path(), &["--size", "1MiB"]).kill();
    let server = Server::start(runtime.path(), &["--size", "1MiB"]);
    let directory = runtime.path().join("zfold");
    assert_eq!(fs::read_dir(&directory).expect("a directory").count(), 2);
    assert_eq!(server.ask(&["get"])["disksize"], 1 << 20);
}

#[test]
fn the_service_manager_is_told_and_its_sockets_are_served() {
    let runtime = tempdir().expect("a directory");
    let (told, passed) = (runtime.path().join("notify"), runtime.path().join("passed.nbd"));
    let notify = UnixDatagram::bind(&told).expect("bound");
    let listener = UnixListener::bind(&passed).expect("bound");
    // The socket arrives as standard input, and becomes descriptor 3 as the convention wants it.
    let script = "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" \"$@\" 3<&0 </dev/null";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_zfold"), "disk", "--no-mlock"]);
    command.args(["--size", "1MiB"]).stdin(Stdio::from(OwnedFd::from(listener)));
    command.env("NOTIFY_SOCKET", &told).env("XDG_RUNTIME_DIR", runtime.path());
    let server = Server::spawn(runtime.path(), command);
    let mut state = [0; 64];
    let mut next = || {
        let len = notify.recv(&mut state).expect("told");
        String::from_utf8_lossy(&state[..len]).into_owned()
    };
    assert_eq!(next(), "READY=1");
    assert_eq!(server.addresses.len(), 1, "no socket besides: {:?}", server.addresses);
    assert_eq!(Client::connect(&passed, "").size, 1 << 20);
    assert_eq!(server.stop().0, Some(0));
    assert_eq!(next(), "STOPPING=1");
}

#[test]
fn memory_that_may_not_be_locked_is_no_news_over_nbd() {
    let runtime = tempdir().expect("a directory");
    // An address space that cannot be locked in 64 KiB, for users who are not root; root may.
    let script = "ulimit -l 64; exec \"$0\" disk --size 1MiB";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_zfold")]);
    command.env("XDG_RUNTIME_DIR", runtime.path());
    let server = Server::spawn(runtime.path(), command);
    let mut client = server.connect("");
    client.write(0, &page(3)).expect("written");
    client.trim(0, 1 << 20);
    assert_eq!(client.read(0, 4096), [0; 4096], "locked memory is given back, too");
    assert_eq!(server.stop(), (Some(0), Vec::new()));
}

#[test]
fn a_device_is_a_file_and_a_disk_of_guests_as_well() {
    needs!(fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok(), "no /dev/fuse");
    let runtime = tempdir().expect("a directory");
    let (file, guests) = (runtime.path().join("disk.img"), runtime.path().join("guests"));
    let frontends = ["--fuse", text(&file), "--vhost-user", text(&guests)];
    let server = Server::start(runtime.path(), &[&["--size", "4MiB"], &frontends[..]].concat());
    assert_eq!(server.addresses, [text(&file), &format!("vhost-user:{}", guests.display())]);
    assert_eq!(fs::metadata(&file).expect("a file").len(), 4 << 20);
    let device = fs::OpenOptions::new().read(true).write(true).open(&file).expect("opened");
    device.write_all_at(&page(1), 8192).expect("written");
    let mut back = [0; 4096];
    device.read_exact_at(&mut back, 8192).expect("read");
    assert_eq!(back[..], page(1));
    assert!(guests.exists());

    // Somebody who has the file open does not keep the server from its end.
    server.signal(Signal::TERM);
    server.heard("in use");
    assert_eq!(server.ended().0, Some(0));
    drop(device);
    // Without the right to unmount, an empty file may stay where the mount was.
    assert!(fs::metadata(&file).map_or(0, |file| file.len()) == 0 && !guests.exists());
}

/// What a server holds for its clients beyond what they store: see docs/use/disk-frontends.md.
#[test]
fn clients_cannot_make_a_server_hold_more_than_it_says() {
    const CLIENTS: u64 = 256;
    let runtime = tempdir().expect("a directory");
    let server = Server::start(runtime.path(), &["--size", "1GiB", "--limit", "64MiB"]);
    let mut first = server.connect("");
    for at in 0..256u32 {
        first.write(u64::from(at) * 4096, &noise(at)).expect("written");
    }
    drop(first);
    let before = server.resident();
    let mut most = 0;
    let mut clients = Vec::new();
    for n in 0..CLIENTS - 1 {
        let mut client = server.connect("");
        client.burden(n % 2 == 0);
        clients.push(client);
        most = most.max(server.resident());
    }
    // One that behaves is served as if there were no others.
    let mut sound = server.connect("");
    sound.write(512 << 20, &noise(7).repeat(512)).expect("written");
    assert_eq!(sound.read(512 << 20, 4096), noise(7));
    for _ in 0..20 {
        most = most.max(server.resident());
        std::thread::sleep(Duration::from_millis(20));
    }
    let held = most.saturating_sub(before);
    println!("{} KiB for {CLIENTS} clients", held >> 10);
    let limit = (32 << 20) + CLIENTS * (640 << 10);
    assert!(held <= limit, "{held} bytes are held for {CLIENTS} clients, {limit} are allowed");
    drop((clients, sound));
    assert_eq!(server.stop().0, Some(0));
}
