//! Clients of NBD on the whole program: many connections, and random ranges beside a model.

use tempfile::tempdir;
use zfold_testing::needs;
use zfold_testing::skip::{installed, skip};

use crate::server::Server;
use crate::tools::{attempt, fio, seconds};

/// Returns whether fio can be a client of NBD, and says so if not.
pub(crate) fn fio_speaks_nbd() -> bool {
    if !installed(&["fio"]) {
        return false;
    }
    let speaks = attempt("fio", &["--enghelp=nbd"]).is_ok_and(|help| help.contains("uri"));
    if !speaks {
        skip("fio has no NBD engine");
    }
    speaks
}

/// Returns the URI under which a server can be reached.
pub(crate) fn uri(server: &Server) -> &str {
    server.addresses[0].split_whitespace().next().expect("an address")
}

#[test]
fn thirty_two_connections_find_what_they_wrote() {
    needs!(fio_speaks_nbd());
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
