//! Servers that are killed.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use zfold_testing::compiled::compile;
use zfold_testing::wait_for;

use crate::common::skip;
use crate::restored::Guest;
use crate::server::{Server, memory};

/// Kills the process that serves, by what it has said.
pub(crate) fn kill(stat: &Value) {
    let pid = stat["server_pid"].as_i64().expect("a number");
    assert_ne!(stat["pid"].as_i64(), Some(pid));
    kill_process(Pid::from_raw(pid as i32).expect("a number"), Signal::KILL).expect("it runs");
}

#[test]
fn a_killed_server_is_replaced_with_all_that_it_had() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guest/guest.c");
    let compiled = match compile(&source, &["-Wall", "-Wextra", "-Werror"]) {
        Ok(compiled) => compiled,
        Err(told) => return skip(&told),
    };
    let folder = tempfile::tempdir().expect("a folder");
    let (one, two) = (folder.path().join("a.mem"), folder.path().join("b.mem"));
    memory(&one, 2001, 1);
    memory(&two, 1000, 2);
    let image = format!("web={}", one.display());
    let server = Server::start(tempfile::tempdir().expect("a folder"), &["--image", &image], 1);
    let said = server.done(&["guest", "import", "late", two.to_str().expect("text")]);
    let late = said.lines().next().expect("a socket").to_owned();
    let socket = server.told[0].1.clone();
    let mut first = Guest::start(&compiled.program, &socket, &one);
    match first.says().as_str() {
        "none" => return skip("no userfaultfd"),
        said => assert_eq!(said, "right"),
    }
    let before = server.stat();
    kill(&before);
    let after = server.stat();
    assert_eq!((&after["pid"], &after["takeovers_total"]), (&before["pid"], &1.into()));
    assert_ne!(after["server_pid"], before["server_pid"]);
    // Its last page was not there; and an image that came later has guests, too.
    assert_eq!(first.again(), "right");
    let mut second = Guest::start(&compiled.program, Path::new(&late), &two);
    assert_eq!(second.says(), "right");
    // A guest has its number still, and can sleep.
    let changed = folder.path().join("changed.mem");
    let file = std::fs::File::create(&changed).expect("a file");
    file.set_len(2001 * 4096).expect("a length");
    let changed = changed.to_str().expect("text");
    let said = server.done(&["guest", "hibernate", "1", "asleep", changed]);
    assert!(said.contains("0 of 2001 pages stored"), "{said}");
    server.refused(&["guest", "hibernate", "9", "x", changed], &["no guest 9 is served"]);
    server.refused(
        &["guest", "hibernate", "1", "asleep", changed],
        &["there is already an image asleep"],
    );
    let short = two.to_str().expect("text");
    server.refused(&["guest", "hibernate", "1", "x", short], &["its base 8196096"]);
    server.refused(&["guest", "hibernate", "1", "x", "/dev/null"], &["cannot import /dev/null"]);
    let asleep = said.lines().next().expect("a socket").to_owned();
    let mut awake = Guest::start(&compiled.program, Path::new(&asleep), &one);
    assert_eq!(awake.says(), "right");
    server.refused(&["guest", "rm", "web"], &["used by the image asleep"]);
    server.end();
    assert_eq!((first.again(), second.again()), ("right".to_owned(), "right".to_owned()));
}

/// What was counted before the server that answers came is there, too.
#[test]
fn metrics_are_those_of_whichever_server_is_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, socket) = (folder.path().join("a.mem"), folder.path().join("metrics"));
    memory(&file, 100, 1);
    let (image, address) =
        (format!("web={}", file.display()), format!("unix:{}", socket.display()));
    let arguments = ["--image", &image, "--metrics", &address];
    let server = Server::start(tempfile::tempdir().expect("a folder"), &arguments, 1);
    let scraped = || {
        let mut stream = UnixStream::connect(&socket).expect("connected");
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("sent");
        let mut got = String::new();
        // Of a server that is killed nothing comes.
        let _ = stream.read_to_string(&mut got);
        got
    };
    let has = |lines: [&str; 3]| {
        wait_for(|| {
            let got = scraped();
            let has = |line: &&str| got.lines().any(|one| one == *line);
            if lines.iter().all(has) { Ok(()) } else { Err(got) }
        });
    };
    let size = "zfold_guest_image_size_bytes{image=\"web\"} 409600";
    let failed = "zfold_guest_failed_handshakes_total";
    has([size, &format!("{failed} 0"), "zfold_guest_takeovers_total 0"]);
    let mut odd = UnixStream::connect(&server.told[0].1).expect("connected");
    odd.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("sent");
    has([size, &format!("{failed} 1"), "zfold_guest_takeovers_total 0"]);
    kill(&server.stat());
    has([size, &format!("{failed} 1"), "zfold_guest_takeovers_total 1"]);
    server.end();
    assert!(!socket.exists(), "the socket of metrics is left");
}

/// The process that stands by has an image before it has a socket, and must forget one that gets
/// none.
#[test]
fn an_image_that_gets_no_socket_is_left_to_no_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a.mem");
    memory(&file, 100, 1);
    let sockets = folder.path().join("a-folder-whose-name-is-long-but-not-too-long-yet");
    std::fs::create_dir(&sockets).expect("made");
    let image = format!("web={}", file.display());
    let arguments = ["--image", &image, "--sockets", sockets.to_str().expect("text")];
    let server = Server::start(tempfile::tempdir().expect("a folder"), &arguments, 1);
    let name = "n".repeat(64);
    let file = file.to_str().expect("text");
    server.refused(&["guest", "import", &name, file], &[&format!("image {name}: ")]);
    kill(&server.stat());
    let list = server.done(&["guest", "list"]);
    assert!(list.lines().count() == 2 && list.contains("web"), "{list}");
    server.end();
}

#[test]
fn who_takes_over_begins_with_what_was_set() {
    let server = Server::start(tempfile::tempdir().expect("a folder"), &[], 0);
    server.refused(&["guest", "set", "limit=4KiB"], &["1MiB or more"]);
    server.refused(&["guest", "set", "codec=lz4"], &["limit=SIZE"]);
    assert_eq!(server.stat()["limit_bytes"], 0);
    server.done(&["guest", "set", "limit=64MiB"]);
    kill(&server.stat());
    let stat = wait_for(|| {
        let stat = server.stat();
        if stat["takeovers_total"] == 1 { Ok(stat) } else { Err(stat) }
    });
    assert_eq!(stat["limit_bytes"], 64 << 20);
    server.end();
}
