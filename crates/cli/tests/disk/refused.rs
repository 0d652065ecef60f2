//! Arguments and files that are refused: one line each, before anything is served.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::tempdir;

use crate::common::{assert_line, assert_refused};
use crate::server::{text, zfold};

/// What a backing file begins with.
const MARK: &str = "zfold backing file: pages that left the memory of a process\n";

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
}

#[test]
fn arguments_that_do_not_go_together_are_wrong_usage() {
    let disk = |arguments: &[&str], parts: &[&str]| {
        assert_refused(&[&["disk"], arguments].concat(), 2, parts);
    };
    disk(&[], &["no size", "--size 1GiB"]);
    disk(&["--size", "64GB"], &["a size is a whole number", "64M"]);
    disk(&["--size", "64"], &["multiple of 4096"]);
    disk(&["--size", "-1GiB"], &["below 0"]);
    disk(&["--size", "1GiB", "--limit", "5"], &["--limit 5 bytes is too small", "1MiB or more"]);
    disk(&["--size", "1GiB", "--force"], &["--backing"]);
    disk(&["--size", "0GiB"], &["positive multiple"]);
    disk(&["--size", "1KiB"], &["multiple of 4096"]);
    disk(&["--size", "1GiB", "--sector", "1024"], &["512, 4096"]);
    disk(&["--size", "1GiB", "--codec", "lz5"], &["unknown codec 'lz5'"]);
    disk(&["--size", "1GiB", "--recompress", "lz4,lz4,lz4,lz4"], &["at most 3"]);
    disk(&["--size", "1GiB", "--nbd", "/run/a"], &["unix:PATH"]);
    disk(&["--size", "1GiB", "--name", ""], &["1 to 255 bytes"]);
    disk(&["--size", "1GiB", "--writeback-limit", "1GiB"], &["--backing"]);
    disk(&["--size", "1GiB", "--idle-after", "10min"], &["--backing or --recompress"]);
    disk(&["--size", "1GiB", "--idle-after", "10"], &["a duration is"]);
    disk(&["--size", "1GiB", "--tls-required"], &["--tls-cert"]);
    disk(&["--size", "1GiB", "--tls-cert", "c"], &["--tls-key"]);
    disk(&["--size", "1GiB", "--max-connections", "0"], &["1..=65536"]);
    assert_refused(&["ctl", "set", "limit=1"], 2, &["no knob 'limit'", "mem_limit"]);
    assert_refused(&["ctl", "writeback", "type=cold"], 2, &["no type 'cold'"]);
    assert_refused(&["ctl", "set", "mem_limit=5"], 2, &["1MiB or more"]);
    assert_refused(&["ctl"], 2, &["'zfold ctl' requires a subcommand", "writeback"]);
    assert_refused(&["disk", "--load", "/no/such.zfs"], 1, &["/no/such.zfs", "no such file"]);
    assert_refused(&["stat", "--watch", "0"], 2, &["1..=86400"]);
}

#[test]
fn files_that_cannot_be_used_are_failures() {
    let runtime = tempdir().expect("a directory");
    let path = |name: &str| runtime.path().join(name);
    fs::write(path("empty"), "").expect("written");
    fs::create_dir(path("directory")).expect("made");
    let (empty, directory, absent) = (path("empty"), path("directory"), path("no/such"));
    let refused = |arguments: &[&str], parts: &[&str]| {
        let line = [&["disk", "--no-mlock", "--size", "1MiB"], arguments].concat();
        assert_line(&zfold(runtime.path(), &line).output().expect("it starts"), 1, parts);
    };
    refused(&["--dictionary", text(&absent)], &["no/such", "zfold ctl train"]);
    refused(&["--dictionary", text(&empty)], &["empty", "zfold ctl train"]);
    refused(&["--load", text(&empty)], &["empty", "cannot load"]);
    refused(&["--load", text(&directory)], &["directory", "cannot load"]);
    refused(&["--backing", text(&directory)], &["directory"]);
    fs::write(path("letter"), "dear").expect("written");
    refused(&["--backing", text(&path("letter"))], &["letter", "--force"]);
    assert_eq!(fs::read_to_string(path("letter")).expect("text"), "dear");
    refused(&["--backing", text(&absent)], &["no/such"]);
    refused(&["--backing", "nbd://127.0.0.1:1/"], &["nbd://127.0.0.1:1/", "start it"]);
    let planted = path("planted");
    fs::write(&planted, MARK).expect("written");
    set_mode(&planted, 0o666);
    symlink(&planted, path("link")).expect("a link");
    for force in [&[][..], &["--force"]] {
        let backing = |path| [&["--backing", path], force].concat();
        refused(&backing(text(&planted)), &["open to other users", "chmod 600"]);
        refused(&backing(text(&path("link"))), &["symbolic link"]);
    }
    assert_eq!(fs::read_to_string(&planted).expect("text"), MARK);
    for flag in ["--load", "--dictionary"] {
        refused(&[flag, text(&planted)], &["everybody may write to it"]);
    }
    let socket = format!("unix:{}", absent.display());
    refused(&["--nbd", &socket], &["no/such", "create the directory"]);
    refused(&["--control", text(&empty)], &["empty", "choose another path"]);
    refused(&["--nbd", "tcp:host.invalid:1"], &["host.invalid"]);
    refused(&["--tls-cert", text(&empty), "--tls-key", text(&empty)], &["empty"]);
}

#[test]
fn a_fifo_is_refused_and_not_waited_for() {
    let runtime = tempdir().expect("a directory");
    let fifo = runtime.path().join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("a FIFO");
    let fifo = text(&fifo);
    for flags in [
        &["--load", fifo][..],
        &["--dictionary", fifo],
        &["--backing", fifo],
        &["--tls-cert", fifo, "--tls-key", fifo],
    ] {
        let line = [&["disk", "--no-mlock", "--size", "1MiB"], flags].concat();
        let output = zfold(runtime.path(), &line).output().expect("it starts");
        assert_line(&output, 1, &["fifo", "name"]);
    }
}
