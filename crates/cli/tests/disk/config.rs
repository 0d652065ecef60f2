//! The configuration file, which may have several devices.

use std::fs;

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
