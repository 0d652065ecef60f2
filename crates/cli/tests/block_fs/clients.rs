//! Clients of NBD on the whole program: many connections, and random ranges beside a model.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use tempfile::tempdir;
use zfold_testing::Random;
use zfold_testing::skip::{installed, skip};

use crate::server::{Server, text};
use crate::tools::{attempt, fio, output, run, seconds, tool};

const MIB: usize = 1 << 20;

/// Returns whether fio can be a client of NBD, and says so if not.
pub(crate) fn fio_speaks_nbd(test: &str) -> bool {
    if !installed(test, &["fio"]) {
        return false;
    }
    let speaks = attempt("fio", &["--enghelp=nbd"]).is_ok_and(|help| help.contains("uri"));
    if !speaks {
        skip(test, "fio has no NBD engine");
    }
    speaks
}

/// Returns the URI under which a server can be reached.
pub(crate) fn uri(server: &Server) -> &str {
    server.addresses[0].split_whitespace().next().expect("an address")
}

#[test]
fn thirty_two_connections_find_what_they_wrote() {
    let test = "thirty_two_connections_find_what_they_wrote";
    if !fio_speaks_nbd(test) {
        return;
    }
    let runtime = tempdir().expect("a directory");
    let server = Server::start(runtime.path(), &["--size", "128MiB"]);
    let target = format!("--uri={}", uri(&server));
    let loops = 1 + seconds() / 3;
    let jobs = "--ioengine=nbd --direct=1 --size=4m --numjobs=32 --offset_increment=4m \
                --iodepth=8 --verify=crc32c --verify_fatal=1 --do_verify=1";
    for (rw, sizes) in [("randwrite", "--bs=4k"), ("randwrite", "--bsrange=512-64k")] {
        let line = format!("{jobs} --rw={rw} {sizes} --loops={loops}");
        fio(runtime.path(), &target, &line);
    }
    let stat = server.stat();
    println!("{}", stat["nbd"]);
    assert!(stat["nbd"]["connections_total"].as_u64() >= Some(64));
    assert_eq!(stat["nbd"]["errors_total"], 0);
    // 64 KiB pieces at any sector: all pages of the device were written.
    assert_eq!(stat["disks"][0]["zswap"]["stored_pages"], 128 * 256);
    assert_eq!(server.stop().0, Some(0));
}

/// Writes commands of qemu-io for random ranges, and what the device must hold then to `model`.
fn commands(seed: u64, count: usize, model: &mut [u8]) -> String {
    let (mut numbers, mut text) = (Random::new(seed), String::new());
    let size = model.len() as u64;
    for _ in 0..count {
        let at = numbers.below(size);
        let len = 1 + numbers.below((size - at).min(200_000));
        // Half of the ranges are whole pages.
        let (at, len) = match numbers.below(2) {
            0 => (at, len),
            _ => (at / 4096 * 4096, (len.div_ceil(4096) * 4096).min(size - at / 4096 * 4096)),
        };
        let range = at as usize..(at + len) as usize;
        match numbers.below(6) {
            0 | 1 => {
                let byte = numbers.below(256) as u8;
                let fua = if numbers.below(8) == 0 { "-f " } else { "" };
                writeln!(text, "write {fua}-P {byte} {at} {len}").expect("text");
                model[range].fill(byte);
            }
            2 => {
                let unmap = if numbers.below(2) == 0 { "-u " } else { "" };
                writeln!(text, "write -z {unmap}{at} {len}").expect("text");
                model[range].fill(0);
            }
            3 if at % 4096 == 0 && len % 4096 == 0 => {
                writeln!(text, "discard {at} {len}").expect("text");
                model[range].fill(0);
            }
            4 if numbers.below(4) == 0 => text.push_str("flush\n"),
            _ => {
                let byte = model[range.start];
                let same = model[range].iter().take_while(|other| **other == byte).count();
                writeln!(text, "read -P {byte} {at} {same}").expect("text");
            }
        }
    }
    text
}

#[test]
fn qemu_io_finds_random_ranges_as_a_model_has_them() {
    let test = "qemu_io_finds_random_ranges_as_a_model_has_them";
    if !installed(test, &["qemu-io", "qemu-img", "nbdcopy"]) {
        return;
    }
    let runtime = tempdir().expect("a directory");
    let server = Server::start(runtime.path(), &["--size", "8MiB", "--sector", "512"]);
    let mut model = vec![0; 8 * MIB];
    for seed in 0..2 + seconds() / 3 {
        let script = runtime.path().join("commands");
        fs::write(&script, commands(seed, 500, &mut model)).expect("written");
        let mut command = tool("qemu-io", &["-f", "raw", uri(&server)]);
        command.stdin(fs::File::open(&script).expect("opened"));
        let printed = output(command).unwrap_or_else(|complaint| panic!("{complaint}"));
        let fault = ["verification failed", "failed:", "error"].iter();
        assert!(!fault.into_iter().any(|part| printed.contains(part)), "seed {seed}: {printed}");
        assert!(printed.contains("read ") && printed.contains("discard "), "{printed}");
        compare(runtime.path(), &server, &model);
    }
    assert_eq!(server.stat()["nbd"]["errors_total"], 0);
    assert_eq!(server.stop().0, Some(0));
}

/// Compares the whole device with the model, by two clients.
fn compare(dir: &Path, server: &Server, model: &[u8]) {
    let (image, copy) = (dir.join("model"), dir.join("copy"));
    fs::write(&image, model).expect("written");
    run("qemu-img", &["compare", "-f", "raw", "-F", "raw", text(&image), uri(server)]);
    run("nbdcopy", &[uri(server), text(&copy)]);
    assert!(fs::read(&copy).expect("a copy") == model, "nbdcopy reads something else");
    fs::remove_file(&copy).expect("removed");
}
