//! Knobs, commands and statistics of a running server.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixStream;

use serde_json::Value;
use tempfile::tempdir;
use zfold_testing::nbd::protocol::error::ENOSPC;
use zfold_testing::wait_until;

use crate::common::assert_line;
use crate::server::{Server, noise, page, text, zfold};

fn number(value: &Value, field: &str) -> u64 {
    value[field].as_u64().unwrap_or_else(|| panic!("{field} of {value}"))
}

#[test]
fn knobs_are_turned_and_told() {
    let runtime = tempdir().expect("a directory");
    let backing = runtime.path().join("cold");
    let line = ["--size", "4MiB", "--limit", "8MiB", "--backing", text(&backing)];
    let server = Server::start(runtime.path(), &line);
    let knobs = server.ask(&["get"]);
    assert_eq!((number(&knobs, "mem_limit"), number(&knobs, "disksize")), (8 << 20, 4 << 20));
    let knobs = server.ask(&[
        "set",
        "mem_limit=16MiB",
        "writeback_limit=1MiB",
        "shrinker_enabled=1",
        "idle_after=1h",
    ]);
    for (name, value) in [
        ("mem_limit", 16 << 20),
        ("writeback_limit", 256),
        ("writeback_limit_enable", 1),
        ("shrinker_enabled", 1),
        ("idle_after", 3600),
    ] {
        assert_eq!(number(&knobs, name), value, "{name}");
    }
    assert_eq!(server.ask(&["set", "writeback_limit_enable=0"])["writeback_limit_enable"], 0);
    let lines = String::from_utf8(server.ctl(&["get"]).stdout).expect("text");
    assert!(lines.lines().any(|line| line == "mem_limit 16777216"), "{lines}");
    // All or none of a line.
    let output = server.ctl(&["set", "mem_limit=1MiB", "idle_after=soon"]);
    assert_line(&output, 2, &["idle_after=soon", "10min"]);
    assert_eq!(server.ask(&["get"])["mem_limit"], 16 << 20);
}

#[test]
fn pages_are_written_back_recompressed_and_stay_what_they_were() {
    let runtime = tempdir().expect("a directory");
    let backing = runtime.path().join("cold");
    let line = ["--size", "4MiB", "--backing", text(&backing), "--recompress", "zstd:9"];
    let server = Server::start(runtime.path(), &line);
    let mut client = server.connect("");
    for number in 0..64 {
        let data = if number % 8 == 7 { noise(number) } else { page(number) };
        client.write(u64::from(number) * 4096, &data).expect("written");
    }
    let done = server.ask(&["recompress", "type=all", "algo=zstd:9"]);
    assert!(number(&done, "pages") > 0, "{done}");
    assert_eq!(number(&server.ask(&["idle", "all"]), "idle_pages"), 64);
    assert_eq!(number(&server.ask(&["writeback", "type=huge"]), "pages"), 8);
    let done = server.ask(&["writeback", "page_indexes=0-3", "page_index=5"]);
    assert_eq!(number(&done, "pages"), 5);
    assert_eq!(number(&server.ask(&["writeback", "type=idle", "max_pages=3"]), "pages"), 3);
    let disk = &server.stat()["disks"][0];
    assert_eq!(number(&disk["bd_stat"], "bd_count"), 16);
    assert_eq!(number(&disk["mm_stat"], "huge_pages"), 0);
    for number in 0..64 {
        let data = if number % 8 == 7 { noise(number) } else { page(number) };
        assert_eq!(client.read(u64::from(number) * 4096, 4096), data, "page {number}");
    }
    assert!(server.ask(&["compact"])["pages_freed"].is_u64());
    let output = server.ctl(&["recompress", "algo=lz4"]);
    assert_line(&output, 1, &["does not recompress with 'lz4'"]);
}

#[test]
fn a_device_is_saved_and_trained_on() {
    let runtime = tempdir().expect("a directory");
    let (snapshot, dictionary) = (runtime.path().join("s"), runtime.path().join("d"));
    let server = Server::start(runtime.path(), &["--size", "16MiB"]);
    let mut client = server.connect("");
    assert_eq!(client.size, 16 << 20);
    for number in 0..1024_u32 {
        let mut data = page(number / 4);
        data[..4].copy_from_slice(&number.to_le_bytes());
        client.write(u64::from(number) * 4096, &data).expect("written");
    }
    assert_eq!(server.ask(&["save", text(&snapshot)])["pages"], 1024);
    let trained = server.ask(&["train", text(&dictionary), "4KiB"]);
    assert!((1..=4096).contains(&number(&trained, "bytes")), "{trained}");
    assert_eq!(server.ask(&["shutdown"])["stopping"], true);
    assert_eq!(server.ended().0, Some(0));

    let line = ["--load", text(&snapshot), "--dictionary", text(&dictionary)];
    let server = Server::start(runtime.path(), &line);
    let mut data = page(255);
    data[..4].copy_from_slice(&1023_u32.to_le_bytes());
    let mut client = server.connect("");
    assert_eq!(client.read(1023 * 4096, 4096), data);
    client.write(0, &data).expect("written");
    assert_eq!(client.read(0, 4096), data);
}

#[test]
fn a_full_device_refuses_and_says_so() {
    let runtime = tempdir().expect("a directory");
    let server = Server::start(runtime.path(), &["--size", "64MiB", "--limit", "4MiB"]);
    let mut client = server.connect("");
    let full = (0..4096).find_map(|number| {
        client.write(u64::from(number) * 4096, &noise(number)).err().map(|error| (number, error))
    });
    let (stored, error) = full.expect("there is a limit");
    assert_eq!(error, ENOSPC);
    let disk = &server.stat()["disks"][0];
    let (mm, zswap) = (&disk["mm_stat"], &disk["zswap"]);
    // What the refused page made the tables grow by stays.
    assert!(number(mm, "mem_used_total") <= (4 << 20) + 4096, "{disk}");
    assert!(number(mm, "mem_used_max") >= number(mm, "mem_used_total"));
    assert!(number(zswap, "pool_limit_hit") > 0);
    assert_eq!(number(zswap, "stored_pages"), u64::from(stored));
    assert_eq!(number(mm, "orig_data_size"), u64::from(stored) * 4096);
    assert!(number(&disk["io_stat"], "failed_writes") > 0);
    let table = zfold(runtime.path(), &["stat"]).output().expect("the program starts");
    let table = String::from_utf8(table.stdout).expect("text");
    for part in ["mem_limit", "4.00 MiB", "pool_limit_hit", "refused or failed"] {
        assert!(table.contains(part), "{table}");
    }
    client.trim(0, 16 << 20);
    server.ask(&["set", "mem_limit=0"]);
    client.write(0, &noise(1)).expect("there is room again");
}

#[test]
fn the_sums_of_the_statistics_balance() {
    let runtime = tempdir().expect("a directory");
    let server = Server::start(runtime.path(), &["--size", "16MiB", "--dedup"]);
    let mut client = server.connect("");
    for number in 0..200_u32 {
        let data = match number % 4 {
            0 => vec![number as u8; 4096],
            1 => noise(number),
            2 => page(7),
            _ => page(number),
        };
        client.write(u64::from(number) * 4096, &data).expect("written");
    }
    client.trim(0, 40 * 4096);
    let report = server.stat();
    assert_eq!(report["schema"], "zfold.stat/1");
    let disk = &report["disks"][0];
    let (mm, store) = (&disk["mm_stat"], &disk["store"]);
    let tables = number(store, "metadata_bytes") + number(store, "pool_metadata_bytes");
    let pages = number(&disk["zswap"], "pool_total_size") + number(store, "pool_idle_bytes");
    assert_eq!(number(mm, "mem_used_total"), pages + tables);
    assert_eq!(number(mm, "orig_data_size"), 160 * 4096);
    assert_eq!((number(mm, "same_pages"), number(mm, "huge_pages")), (40, 40));
    assert_eq!(number(store, "duplicate_pages"), 39);
    assert_eq!(number(&disk["io_stat"], "notify_free"), 40);
    assert_eq!(number(&disk["device"], "writes_total"), 200);
    assert_eq!(number(&disk["device"], "written_bytes_total"), 200 * 4096);
    assert_eq!(number(&report["nbd"], "connections"), 1);
}

#[test]
fn control_and_metrics_bear_hostile_clients() {
    let runtime = tempdir().expect("a directory");
    let (control, metrics) = (runtime.path().join("c"), runtime.path().join("m"));
    let address = format!("unix:{}", metrics.display());
    let line = ["--size", "1MiB", "--control", text(&control), "--metrics", &address];
    let server = Server::start(runtime.path(), &line);
    let talk = |path: &std::path::Path, sent: &[u8]| {
        let mut stream = UnixStream::connect(path).expect("connected");
        // The server may hang up before all is sent.
        let _ = stream.write_all(sent).and_then(|()| stream.shutdown(std::net::Shutdown::Write));
        let mut got = Vec::new();
        let _ = stream.read_to_end(&mut got);
        String::from_utf8_lossy(&got).into_owned()
    };
    let got = talk(&control, b"{\"command\":\"get\"}\nnonsense\n{\"command\":\"compact\"}\n");
    let lines: Vec<Value> =
        got.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let oks: Vec<_> = lines.iter().map(|line| line["ok"] == true).collect();
    assert_eq!(oks, [true, false, true], "{got}");
    assert!(!talk(&control, &vec![b'{'; 1 << 20]).contains("\"ok\":true"));
    talk(&control, &[0xFF; 100]);

    let got = talk(&metrics, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(got.starts_with("HTTP/1.1 200 OK\r\n"), "{got}");
    assert!(got.contains("\nzfold_size_bytes{disk=\"disk\"} 1048576\n"), "{got}");
    assert!(got.contains("# TYPE zfold_reads_total counter"), "{got}");
    assert!(
        got.contains(&format!(
            "\nzfold_build_info{{version=\"{}\"}} 1\n",
            env!("CARGO_PKG_VERSION")
        )),
        "{got}"
    );
    assert!(talk(&metrics, b"GET /x HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(talk(&metrics, b"\r\n\r\n").starts_with("HTTP/1.1 400"));
    assert!(!talk(&metrics, &vec![b'x'; 1 << 20]).contains("200 OK"));
    let endless = [&b"GET /metrics HTTP/1.1\r\n"[..], &b"A: b\r\n".repeat(1 << 16)].concat();
    assert!(!talk(&metrics, &endless).contains("200 OK"));
    // One request a connection, and no body is waited for.
    let two =
        b"GET /metrics HTTP/1.1\r\nContent-Length: 99999999\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n";
    assert_eq!(talk(&metrics, two).matches("HTTP/1.1 200").count(), 1);
    for odd in [
        "GET /metrics HTTP/1.1\n\n",
        "GET\0/metrics\0HTTP/1.1\r\n\r\n",
        "GET  /metrics HTTP/1.1\r\n\r\n",
    ] {
        assert!(!talk(&metrics, odd.as_bytes()).contains("200 OK"), "{odd:?}");
    }
    // Many that say nothing take all places, and give them back when they leave.
    let silent: Vec<_> = (0..64).filter_map(|_| UnixStream::connect(&metrics).ok()).collect();
    drop(silent);
    wait_until("another is served", || {
        let got = talk(&metrics, b"GET /metrics HTTP/1.1\r\n\r\n");
        got.starts_with("HTTP/1.1 200 OK\r\n")
    });
    let target = ["ctl", "--control", text(&control), "get"];
    let output = zfold(runtime.path(), &target).output().expect("the program starts");
    assert!(output.status.success());
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn the_server_is_found_or_must_be_named() {
    let runtime = tempdir().expect("a directory");
    let ask = || zfold(runtime.path(), &["ctl", "get"]).output().expect("the program starts");
    assert_line(&ask(), 1, &["no server", "start zfold disk"]);
    let first = Server::start(runtime.path(), &["--size", "1MiB"]);
    assert!(ask().status.success());
    let second = Server::start(runtime.path(), &["--size", "2MiB"]);
    assert_line(&ask(), 2, &["several servers", ".sock, "]);
    let status = ["stat", "--control", "/nonexistent/socket"];
    let output = zfold(runtime.path(), &status).output().expect("the program starts");
    assert_line(&output, 1, &["no server answers at /nonexistent/socket"]);
    first.kill();
    assert!(ask().status.success(), "a socket that a killed server left does not count");
    assert_eq!(second.ask(&["get"])["disksize"], 2 << 20);
    // Where others may put sockets, what answers may be theirs.
    let directory = runtime.path().join("zfold");
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).expect("changed");
    assert_line(&ask(), 1, &[text(&directory), "yours alone", "--control"]);
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).expect("changed");
    assert!(ask().status.success());
    let elsewhere = tempdir().expect("a directory");
    symlink(&directory, elsewhere.path().join("zfold")).expect("a link");
    let output = zfold(elsewhere.path(), &["ctl", "get"]).output().expect("the program starts");
    assert_line(&output, 1, &["yours alone"]);
}
