//! Images by command.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use zfold_testing::random::noise;

use crate::common::assert_refused;
use crate::server::{Server, memory};
use crate::survival::kill;

#[test]
fn images_are_imported_listed_exported_and_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    memory(path("a.mem").as_ref(), 1000, 1);
    memory(path("b.mem").as_ref(), 1000, 1);
    memory(path("other.mem").as_ref(), 1000, 2);
    let server = Server::start(tempfile::tempdir().expect("a folder"), &[], 0);
    assert!(server.done(&["guest", "list"]).contains("no images"));

    let said = server.done(&["guest", "import", "a", &path("a.mem")]);
    assert!(said.contains("250 of 1000 pages stored"), "{said}");
    let socket = said.lines().next().expect("a line");
    assert_eq!(fs::metadata(socket).expect("a socket").permissions().mode() & 0o777, 0o600);
    let said = server.done(&["guest", "import", "b", &path("b.mem"), "--base", "a"]);
    assert!(said.contains("0 of 1000 pages stored"), "{said}");
    server.done(&["guest", "import", "c", &path("other.mem")]);
    let stat = server.stat();
    assert_eq!(stat["images"][1]["base"], "a");
    assert_eq!(stat["images"][2]["own_pages"], 250);
    let list = server.done(&["guest", "list"]);
    assert!(list.lines().count() == 4 && list.contains(socket), "{list}");

    server.done(&["guest", "export", "b", &path("b.out")]);
    assert!(fs::read(path("b.out")).expect("a file") == fs::read(path("a.mem")).expect("a file"));
    server.refused(&["guest", "export", "b", &path("b.out")], &["exists"]);
    server.refused(&["guest", "export", "x", &path("x.out")], &["choices: a, b, c"]);
    server.refused(&["guest", "import", "a", &path("a.mem")], &["remove it first"]);
    server.refused(&["guest", "import", "d", &path("nothing")], &["cannot import"]);
    server.refused(&["guest", "import", "a/b", &path("a.mem")], &["the name of an image"]);
    server.refused(&["guest", "rm", "a"], &["used by the image b"]);
    server.done(&["guest", "rm", "b"]);
    server.done(&["guest", "rm", "a"]);
    assert!(fs::metadata(socket).is_err(), "its socket is there");
    assert_eq!(server.stat()["images"][0]["name"], "c");
}

#[test]
fn images_survive_the_server_in_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    memory(path("a.mem").as_ref(), 100, 1);
    let saved = path("images.zfs");
    let arguments = ["--load", &saved, "--save", &saved];
    let server = Server::start(tempfile::tempdir().expect("a folder"), &arguments, 0);
    server.done(&["guest", "import", "a", &path("a.mem")]);
    server.done(&["guest", "import", "b", &path("a.mem"), "--base", "a"]);
    let runtime = server.end();
    assert_eq!(fs::read_dir(runtime.path().join("zfold")).expect("a folder").count(), 0);

    let server = Server::start(runtime, &arguments, 2);
    assert_eq!((&*server.told[0].0, &*server.told[1].0), ("a", "b"));
    server.done(&["guest", "export", "b", &path("b.out")]);
    assert!(fs::read(path("b.out")).expect("a file") == fs::read(path("a.mem")).expect("a file"));
    server.done(&["guest", "save", &path("again.zfs")]);
    assert!(fs::metadata(path("again.zfs")).expect("a file").len() > 0);
}

/// Whichever server is there finds the pages that were written to the file, and those alone.
#[test]
fn images_beyond_the_limit_lie_in_a_file_though_servers_are_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    for (name, seed) in [("a", 1), ("b", 2), ("c", 3)] {
        fs::write(path(name), noise(seed, 1500 * 4096)).expect("written");
    }
    let arguments = ["--limit", "2MiB", "--backing", &path("cold"), "--backing-size", "64MiB"];
    let server = Server::start(tempfile::tempdir().expect("a folder"), &arguments, 0);
    let is_as = |name: &str, round: u32| {
        let out = path(&format!("{name}.{round}"));
        server.done(&["guest", "export", name, &out]);
        assert!(fs::read(out).expect("a file") == fs::read(path(name)).expect("a file"), "{name}");
    };
    server.done(&["guest", "import", "a", &path("a")]);
    server.done(&["guest", "import", "b", &path("b")]);
    let stat = server.stat();
    let number = |name: &str| stat[name].as_u64().expect("a number");
    assert!(number("held_bytes") < 3 << 20, "{stat}");
    assert!(number("backed_pages") > 2000 && number("backing_bytes") > 8 << 20, "{stat}");
    is_as("a", 1);
    kill(&stat);
    is_as("a", 2);
    is_as("b", 2);
    // What the image had there is used for another one.
    server.done(&["guest", "rm", "a"]);
    server.done(&["guest", "import", "c", &path("c")]);
    kill(&server.stat());
    is_as("b", 3);
    is_as("c", 3);
    assert_eq!(server.stat()["takeovers_total"], 2);
    server.end();
}

#[test]
fn an_image_and_the_state_of_its_snapshot_belong_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    memory(path("a.mem").as_ref(), 100, 1);
    fs::write(path("a.state"), "processors").expect("written");
    let server = Server::start(tempfile::tempdir().expect("a folder"), &[], 0);
    let import = ["guest", "import", "a", &path("a.mem"), "--state", &path("a.state"), "--json"];
    let said: serde_json::Value = serde_json::from_str(&server.done(&import)).expect("JSON");
    assert_eq!(said["stored_pages"], 25);
    server.done(&["guest", "import", "b", &path("a.mem")]);
    let stat = server.stat();
    assert_eq!(
        (&stat["images"][0]["state_bytes"], &stat["images"][1]["state_bytes"]),
        (&10.into(), &serde_json::Value::Null)
    );
    let hash = stat["images"][0]["state_xxh3"].as_str().expect("a hash");
    assert!(server.done(&["guest", "list"]).contains(hash));
    assert_eq!(stat["images"][0]["machine_bytes"], serde_json::Value::Null);
    server.done(&["guest", "state", "a", &path("a.again")]);
    assert_eq!(fs::read(path("a.again")).expect("a file"), b"processors");
    server.refused(&["guest", "state", "a", &path("a.again")], &["exists"]);
    server.refused(&["guest", "state", "b", &path("b.state")], &["without its state file"]);
    assert!(!fs::exists(path("b.state")).expect("known"));
    server.refused(
        &["guest", "import", "c", &path("a.mem"), "--state", "/nowhere"],
        &["cannot read"],
    );
}

#[test]
fn sockets_lie_where_and_are_whose_one_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    memory(path("a.mem").as_ref(), 100, 1);
    fs::create_dir(path("sockets")).expect("made");
    let image = format!("web={}", path("a.mem"));
    let arguments = ["--sockets", &path("sockets"), "--socket-mode", "660", "--image", &image];
    let server = Server::start(tempfile::tempdir().expect("a folder"), &arguments, 1);
    assert_eq!(server.told[0].1.to_str(), Some(&*path("sockets/web.sock")));
    let mode = fs::metadata(&server.told[0].1).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let serve = |arguments: &[&str], status, parts: &[&str]| {
        assert_refused(&[&["guest", "serve"], arguments].concat(), status, parts);
    };
    serve(&["--limit", "1KiB"], 2, &["--limit"]);
    serve(&["--backing", "/tmp/x"], 2, &["--limit"]);
    serve(&["--limit", "1MiB", "--backing", "redis://a"], 2, &["a file or a block device"]);
    serve(&["--fill-rate", "1KiB"], 2, &["--fill-rate"]);
    serve(&["--image", "web"], 2, &["NAME=FILE"]);
    serve(&["--image", "web=/x", "--image", "web=/y"], 2, &["two images"]);
    serve(&["--socket-mode", "x"], 2, &["permissions"]);
    serve(&["--sockets", "/nowhere"], 2, &["not a folder"]);
    serve(&["--load", "/nowhere"], 1, &["cannot load"]);
    serve(&["--image", "web=/nowhere"], 1, &["cannot import"]);
    let runtime = tempfile::tempdir().expect("a folder");
    let mut alone = crate::common::command(&["guest", "list"]);
    let output = alone.env("XDG_RUNTIME_DIR", runtime.path()).output().expect("started");
    crate::common::assert_line(&output, 1, &["start zfold guest serve"]);
}
