//! Servers that are killed.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use zfold_testing::compiled::compile;

use crate::common::skip;
use crate::restored::Guest;
use crate::server::{Server, memory};

#[test]
fn a_killed_server_is_replaced_with_all_that_it_had() {
    let test = "a_killed_server_is_replaced_with_all_that_it_had";
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guest/guest.c");
    let compiled = match compile(&source, &["-Wall", "-Wextra", "-Werror"]) {
        Ok(compiled) => compiled,
        Err(told) => return skip(test, &told),
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
        "none" => return skip(test, "no userfaultfd"),
        said => assert_eq!(said, "right"),
    }
    let before = server.stat();
    let pid = before["server_pid"].as_i64().expect("a number");
    assert_ne!(before["pid"].as_i64(), Some(pid));
    kill_process(Pid::from_raw(pid as i32).expect("a number"), Signal::KILL).expect("it runs");
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
    server.refused(&["guest", "hibernate", "1", "asleep", changed], &["there is an image asleep"]);
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
