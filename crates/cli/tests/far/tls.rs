//! An encrypted server with a user: what is needed for it, and that no secret is seen anywhere.

use std::fs;
use std::path::Path;
use std::process::Command;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::{TempDir, tempdir};
use zfold_testing::redis::{self, Server};
use zfold_testing::skip::free_port;
use zfold_testing::skip::has_program;

use crate::common::{needs, skip};
use crate::run::{KEEPER, far};
use crate::runs::can_manage;
use crate::server::{self, noise, text};

const PASSWORD: &str = "hunter2-of-the-tests";

/// A server that takes connections over TLS, too.
struct Encrypted {
    server: Server,
    port: u16,
    /// Has the certificate of the authority, `ca.pem`.
    dir: TempDir,
}

impl Encrypted {
    fn start() -> Self {
        let (dir, port) = (tempdir().expect("a directory"), free_port());
        let mut params = CertificateParams::new(vec![]).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"));
        let authority = authority.expect("a certificate");
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &authority).expect("a certificate");
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).expect("written");
            path
        };
        let ca = write("ca.pem", &authority.pem());
        let pem = write("server.pem", &certificate.pem());
        let key = write("server.key", &key.serialize_pem());
        let server = Server::start(&[
            "--tls-port",
            &port.to_string(),
            "--tls-cert-file",
            text(&pem),
            "--tls-key-file",
            text(&key),
            "--tls-ca-cert-file",
            text(&ca),
            "--tls-auth-clients",
            "no",
        ]);
        let rights = "~zfold:* +set +get +getrange +unlink +expire +info";
        let password = format!(">{PASSWORD}");
        let user =
            ["ACL", "SETUSER", "pages", "on", &password].into_iter().chain(rights.split(' '));
        server.cli(&user.collect::<Vec<_>>());
        Self { server, port, dir }
    }

    fn place(&self) -> String {
        format!("rediss://pages@127.0.0.1:{}", self.port)
    }

    /// Returns `zfold` with what it needs to be let in.
    fn zfold(&self, runtime: &Path, arguments: &[&str]) -> Command {
        let mut command = server::zfold(runtime, arguments);
        command.env("ZFOLD_REDIS_PASSWORD", PASSWORD);
        command.env("SSL_CERT_FILE", self.dir.path().join("ca.pem"));
        command
    }
}

fn ready() -> bool {
    if !redis::ready() {
        return false;
    }
    let help = Command::new("redis-cli").arg("--help").output().expect("it starts");
    let help = [help.stdout, help.stderr].concat();
    let speaks = String::from_utf8_lossy(&help).contains("--tls");
    if !speaks {
        skip("this Redis was built without TLS");
    }
    speaks
}

/// Checks that the password is not in what anybody can read.
fn assert_kept_secret(what: &str, bytes: &[u8]) {
    let said = String::from_utf8_lossy(bytes);
    assert!(!said.contains(PASSWORD), "{what}: {said}");
}

/// Checks the command lines of a process and its children.
fn assert_command_lines_without_secret(program: &str) {
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    let of_program: Vec<_> = lines
        .filter(|line| line.windows(program.len()).any(|part| part == program.as_bytes()))
        .collect();
    assert!(!of_program.is_empty(), "{program} runs");
    of_program.iter().for_each(|line| assert_kept_secret("/proc/PID/cmdline", line));
}

#[test]
fn a_disk_over_tls_says_its_password_to_the_server_alone() {
    needs!(ready());
    let (runtime, redis) = (tempdir().expect("a directory"), Encrypted::start());
    let metrics = runtime.path().join("metrics");
    let address = format!("unix:{}", metrics.display());
    let line = ["disk", "--no-mlock", "--size", "64MiB", "--backing", &redis.place()];
    let line = [&line[..], &["--metrics", &address]].concat();
    let disk = server::Server::spawn(runtime.path(), redis.zfold(runtime.path(), &line));
    let mut client = disk.connect("");
    for page in 0..64 {
        client.write(page * 4096, &noise(page as u32)).expect("written");
    }
    assert_eq!(disk.ask(&["writeback", "page_indexes=0-63"])["pages"], 64);
    assert!(redis.server.values() > 0, "it went there");
    for page in 0..64 {
        assert!(client.read(page * 4096, 4096) == noise(page as u32), "page {page}");
    }
    assert_command_lines_without_secret(&redis.place());
    let stat = disk.stat();
    assert!(stat["disks"][0]["far"]["gets_total"].as_u64() > Some(0), "{stat}");
    assert_kept_secret("stat as JSON", stat.to_string().as_bytes());
    for words in [&["stat"][..], &["ctl", "get"], &["ps"], &["top", "--once"]] {
        let output = server::zfold(runtime.path(), words).output().expect("it starts");
        assert!(output.status.success(), "{words:?}");
        assert_kept_secret(words[0], &[output.stdout, output.stderr].concat());
    }
    assert_kept_secret("metrics", &scrape(&metrics));
    // A failure is told of, too.
    redis.server.cli(&["ACL", "SETUSER", "pages", "-set"]);
    client.write(0, &noise(77)).expect("written");
    let output = disk.ctl(&["writeback", "page_index=0"]);
    assert!(!output.status.success(), "it may not set");
    assert_kept_secret("ctl", &output.stderr);
    let said = disk.heard("disk: redis at ");
    assert!(said.contains("+set"), "{said}");
    assert_kept_secret("stderr", said.as_bytes());
    let (status, said) = disk.stop();
    assert_eq!(status, Some(0));
    assert_kept_secret("stderr", said.join("\n").as_bytes());
}

/// Returns what is told to Prometheus.
fn scrape(socket: &Path) -> Vec<u8> {
    use std::io::{Read as _, Write as _};
    let mut stream = std::os::unix::net::UnixStream::connect(socket).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    assert!(String::from_utf8_lossy(&answer).contains("zfold_far_object_bytes"));
    answer
}

#[test]
fn a_run_over_tls_reports_without_its_password() {
    needs!(ready() && can_manage());
    needs!(has_program("python3"), "no python3");
    let (runtime, redis) = (tempdir().expect("a directory"), Encrypted::start());
    let place = redis.place();
    let line = far(&place, "256MiB", KEEPER);
    let output = redis.zfold(runtime.path(), &line).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stderr).expect("JSON");
    assert!(report["far"]["puts_total"].as_u64() > Some(0), "{report}");
    assert_kept_secret("report", &output.stderr);
    assert_eq!(redis.server.values(), 0, "nothing is left behind");
}

#[test]
fn an_authority_that_nobody_trusts_is_refused_with_the_remedy() {
    needs!(ready());
    let (runtime, redis, other) =
        (tempdir().expect("a directory"), Encrypted::start(), Encrypted::start());
    let line = ["disk", "--no-mlock", "--size", "64MiB", "--backing", &redis.place()];
    let mut command = redis.zfold(runtime.path(), &line);
    command.env("SSL_CERT_FILE", other.dir.path().join("ca.pem"));
    let output = command.output().expect("it starts");
    crate::common::assert_line(&output, 1, &["certificate", "SSL_CERT_FILE"]);
    assert_kept_secret("stderr", &output.stderr);
}
