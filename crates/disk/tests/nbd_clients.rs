//! The clients that people use: libnbd's tools, QEMU's and fio. A test whose client is not
//! installed says so and is skipped.

mod client;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use client::*;
use zfold_disk::Disk;
use zfold_disk::nbd::{Address, Listener, NbdOptions, NbdServer, Tls, tls_config};

const MIB: u64 = 1 << 20;

/// A server on a Unix socket in a directory of its own.
struct OnSocket {
    dir: tempfile::TempDir,
    uri: String,
    server: Arc<NbdServer>,
}

impl OnSocket {
    fn new(disk: &Arc<Disk>, options: NbdOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = Listener::bind(&Address::Unix(dir.path().join("socket"))).unwrap();
        let uri = listener.uri(!matches!(options.tls, Tls::Off));
        let server = NbdServer::new(Arc::clone(disk), options);
        server.serve(listener).unwrap();
        Self { dir, uri, server }
    }

    fn one(disk: &Arc<Disk>) -> Self {
        Self::new(disk, NbdOptions::default().with_name("disk"))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Drop for OnSocket {
    fn drop(&mut self) {
        let drained = self.server.shutdown(PATIENCE);
        assert!(drained || std::thread::panicking());
    }
}

/// Runs a client and returns what it printed; `None` if it is not installed.
fn run(program: &str, args: &[&str]) -> Option<String> {
    let path = std::env::var("PATH").unwrap_or_default();
    // nbdsh is a module of the system's Python, not of one that shadows it.
    let output = Command::new(program).args(args).env("PATH", format!("/usr/bin:{path}")).output();
    let Ok(output) = output else {
        skip(format_args!("{program} is not installed"));
        return None;
    };
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{program} {args:?}: {out}{err}");
    Some(out)
}

/// Writes an image with pages of data, pages of zeros and a hole.
fn image(path: &Path, size: u64) -> Vec<u8> {
    let mut image = vec![0; size as usize];
    for (n, page) in image.chunks_mut(4096).enumerate() {
        if n % 7 < 3 && n % 1000 < 700 {
            page.copy_from_slice(&bytes(4096, n as u64));
        }
    }
    fs::write(path, &image).unwrap();
    image
}

fn contents(disk: &Disk) -> Vec<u8> {
    let mut out = vec![0; disk.size() as usize];
    disk.read(0, &mut out).unwrap();
    out
}

#[test]
fn nbdinfo_shows_the_export_and_its_map() {
    let disk = disk(1024);
    disk.write(MIB, &bytes(4096, 1)).unwrap();
    disk.write_zeroes(2 * MIB, MIB, zfold_disk::Holes::Forbid).unwrap();
    let on = OnSocket::one(&disk);
    let Some(json) = run("nbdinfo", &["--json", &on.uri]) else { return };
    for part in [
        "\"export-size\": 4194304",
        "\"base:allocation\"",
        "\"can_multi_conn\": true",
        "\"can_fast_zero\": true",
        "\"block_size_preferred\": 4096",
        "\"block_size_maximum\": 67108864",
    ] {
        assert!(json.contains(part), "{part} in {json}");
    }
    let map = run("nbdinfo", &["--map", &on.uri]).unwrap();
    let numbers = |line: &str| -> Vec<u64> {
        line.split_whitespace().map_while(|word| word.parse().ok()).collect()
    };
    let lines: Vec<_> = map.lines().map(numbers).collect();
    let rest = 3 * MIB - 4096;
    assert_eq!(lines, [[0, MIB, 3], [MIB, 4096, 0], [MIB + 4096, rest, 3]]);
    let list = run("nbdinfo", &["--list", &on.uri]).unwrap();
    assert!(list.contains("export=\"disk\""), "{list}");
}

#[test]
fn nbdcopy_copies_both_ways() {
    let disk = disk(8192);
    let on = OnSocket::one(&disk);
    let (from, to) = (on.file("from"), on.file("to"));
    let image = image(&from, 32 * MIB);
    let [from, to] = [&from, &to].map(|path| path.to_str().unwrap());
    let Some(_) = run("nbdcopy", &["--connections=4", from, &on.uri]) else { return };
    assert!(contents(&disk) == image);
    assert!(disk.store().len() < 8192 * 3 / 7, "zeros were sent as such");
    run("nbdcopy", &["--connections=4", &on.uri, to]).unwrap();
    assert!(fs::read(to).unwrap() == image);
    // From one server to another.
    let second = self::disk(8192);
    let beside = OnSocket::one(&second);
    run("nbdcopy", &["--connections=4", &on.uri, &beside.uri]).unwrap();
    assert!(contents(&second) == image);
}

#[test]
fn nbdsh_uses_every_command() {
    let disk = disk(256);
    let on = OnSocket::one(&disk);
    let script = r#"
import nbd
h.add_meta_context(nbd.CONTEXT_BASE_ALLOCATION)
h.connect_uri(uri)
assert h.get_size() == 1 << 20 and h.get_structured_replies_negotiated()
data = bytes(range(256)) * 64
h.pwrite(data, 4096, nbd.CMD_FLAG_FUA)
assert h.pread(len(data), 4096) == data
chunks = []
h.pread_structured(32768, 0, lambda b, o, s, e: chunks.append((o, len(b), s)))
assert sorted(chunks) == [(0, 4096, 2), (4096, 16384, 1), (20480, 12288, 2)], chunks
assert h.pread_structured(32768, 0, lambda *a: 0, nbd.CMD_FLAG_DF)[:4096] == bytes(4096)
h.trim(count=4096, offset=8192)
h.zero(4096, 12288, nbd.CMD_FLAG_NO_HOLE | nbd.CMD_FLAG_FAST_ZERO)
h.flush()
h.cache(65536, 0)
runs = []
h.block_status(1 << 20, 0, lambda c, o, e, err: runs.append((c, o, e)))
expected = [4096, 3, 4096, 0, 8192, 3, 4096, 0, (1 << 20) - 20480, 3]
assert runs == [("base:allocation", 0, expected)], runs
one = []
h.block_status(1 << 20, 0, lambda c, o, e, err: one.extend(e), nbd.CMD_FLAG_REQ_ONE)
assert one == [4096, 3], one
h.shutdown()
print("all well")
"#;
    let setup = format!("uri = {:?}", on.uri);
    let Some(out) = run("nbdsh", &["-c", &setup, "-c", script]) else { return };
    assert_eq!(out.trim(), "all well");
    assert_eq!(disk.store().len(), 3, "two pages of data and one of zeros");
}

#[test]
fn qemu_img_converts_and_compares() {
    let disk = disk(8192);
    let on = OnSocket::one(&disk);
    let (raw, back) = (on.file("raw"), on.file("back.qcow2"));
    let image = image(&raw, 32 * MIB);
    let [raw, back] = [&raw, &back].map(|path| path.to_str().unwrap());
    let into = ["convert", "-n", "-W", "-f", "raw", "-O", "raw", raw, &on.uri];
    let Some(_) = run("qemu-img", &into) else { return };
    assert!(contents(&disk) == image);
    run("qemu-img", &["compare", "-f", "raw", "-F", "raw", raw, &on.uri]).unwrap();
    run("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &on.uri, back]).unwrap();
    run("qemu-img", &["compare", "-F", "raw", back, &on.uri]).unwrap();
    run("qemu-img", &["map", "-f", "raw", "--output=json", &on.uri]).unwrap();
}

#[test]
fn libnbd_and_qemu_speak_tls() {
    let dir = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap();
    let (pem, key_pem) = (dir.path().join("ca-cert.pem"), dir.path().join("server.key"));
    fs::write(&pem, certificate.pem()).unwrap();
    fs::write(&key_pem, key.serialize_pem()).unwrap();
    let tls = Tls::Required(tls_config(&pem, &key_pem, None).unwrap());
    let disk = disk(1024);
    let on = OnSocket::new(&disk, NbdOptions::default().with_tls(tls));
    let image = image(&on.file("image"), 4 * MIB);
    let (from, certificates) = (on.file("image"), dir.path().display());
    let from = from.to_str().unwrap();
    let uri = format!("{}&tls-certificates={certificates}&tls-hostname=localhost", on.uri);
    let uri = uri.replacen("///?", "//localhost/?", 1);
    if run("nbdcopy", &["--connections=4", from, &uri]).is_some() {
        assert!(contents(&disk) == image);
    }
    let tls = format!("tls-creds-x509,id=tls,dir={certificates},endpoint=client");
    let socket = on.file("socket");
    let target = format!(
        "driver=nbd,server.type=unix,server.path={},tls-creds=tls,tls-hostname=localhost",
        socket.display(),
    );
    let args = ["--object", &tls, "--image-opts", "-c", "read -P 0 12k 4k", &target];
    let _ = run("qemu-io", &args);
}
