//! The configuration file: several devices, and what SIGHUP changes.

use std::fs;

use rustix::process::Signal;
use tempfile::tempdir;

use crate::common::assert_line;
use crate::server::{Server, page, text, zfold};

const TWO: &str = "\
[[disk]]
name = 'a'
size = '4MiB'
codec = 'zstd:1'
limit = '64MiB'

[[disk]]
name = 'b c'
size = '8MiB'
sector = 512
read-only = true
";

#[test]
fn each_table_is_an_export() {
    let runtime = tempdir().expect("a directory");
    let file = runtime.path().join("zfold.toml");
    fs::write(&file, TWO).expect("written");
    let server = Server::start(runtime.path(), &["--config", text(&file)]);
    let uris: Vec<_> = server.addresses.iter().map(|line| line.split_once("  ")).collect();
    assert_eq!(uris[0].expect("a name").1, "a");
    assert!(server.addresses[1].starts_with("nbd+unix:///b%20c?socket="));
    assert_eq!((server.connect("").size, server.connect("a").size), (4 << 20, 4 << 20));
    let mut client = server.connect("b c");
    assert_eq!(client.size, 8 << 20);
    assert_eq!(client.write(0, &page(1)), Err(1), "EPERM");
    server.connect("a").write(0, &page(1)).expect("written");

    assert_line(&server.ctl(&["get"]), 1, &["--disk", "a, b c"]);
    assert_line(&server.ctl(&["--disk", "d", "get"]), 1, &["no disk 'd'", "a, b c"]);
    assert_eq!(server.ask(&["--disk", "a", "get"])["comp_algorithm"], "zstd:1");
    let report = server.stat();
    assert_eq!(report["disks"][0]["zswap"]["stored_pages"], 1);
    assert_eq!(report["disks"][1]["name"], "b c");
    assert_eq!(report["disks"][1]["sector_bytes"], 512);

    // A flag cannot say which device it means.
    let line = ["disk", "--config", text(&file), "--limit", "1MiB"];
    let output = zfold(runtime.path(), &line).output().expect("the program starts");
    assert_line(&output, 2, &["several disks"]);
}

#[test]
fn flags_override_the_file() {
    let runtime = tempdir().expect("a directory");
    let file = runtime.path().join("zfold.toml");
    fs::write(&file, "[[disk]]\nsize = '4MiB'\ncodec = 'zstd'\n").expect("written");
    let line = ["--config", text(&file), "--size", "2MiB"];
    let server = Server::start(runtime.path(), &line);
    let knobs = server.ask(&["get"]);
    assert_eq!(knobs["disksize"], 2 << 20);
    assert_eq!(knobs["comp_algorithm"], "zstd");
}

#[test]
fn a_hangup_applies_what_can_change_and_tells_the_rest() {
    let runtime = tempdir().expect("a directory");
    let file = runtime.path().join("zfold.toml");
    fs::write(&file, TWO).expect("written");
    let server = Server::start(runtime.path(), &["--config", text(&file)]);
    server.ask(&["--disk", "a", "set", "accept_threshold_percent=50"]);
    let changed = TWO
        .replace("limit = '64MiB'", "limit = '32MiB'\nsize = '16MiB'")
        .replacen("size = '4MiB'\n", "", 1)
        .replace("zstd:1", "lz4");
    fs::write(&file, format!("max-connections = 5\n{changed}")).expect("written");
    server.signal(Signal::HUP);
    server.heard("max-connections cannot change");
    server.heard("a: codec cannot change");
    // The line of an unreadable file comes after all of the one before.
    fs::write(&file, "[[disk]]\nsiez = '1GiB'\n").expect("written");
    server.signal(Signal::HUP);
    let line = server.heard("stays as it was");
    assert!(line.contains("zfold.toml:2: unknown key 'siez'; did you mean 'size'?"), "{line}");
    let knobs = server.ask(&["--disk", "a", "get"]);
    assert_eq!((&knobs["mem_limit"], &knobs["disksize"]), (&(32 << 20).into(), &(16 << 20).into()));
    assert_eq!(knobs["accept_threshold_percent"], 50, "what the file left alone");
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn a_hangup_without_a_file_is_told() {
    let runtime = tempdir().expect("a directory");
    let server = Server::start(runtime.path(), &["--size", "1MiB"]);
    server.signal(Signal::HUP);
    server.heard("no configuration");
    assert_eq!(server.stop().0, Some(0));
}
