//! A release to install from: what `contrib/package` makes for this machine, with the program that
//! is tested, and a server for it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;
use zfold_testing::process::Killed;

/// The files of a release.
pub(crate) struct Release(TempDir);

impl Release {
    /// Makes a release for this machine.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let name = format!("zfold-0.1.0-{}-linux", std::env::consts::ARCH);
        let inside = folder.path().join(&name);
        fs::create_dir(&inside).expect("a folder");
        // A link would lead nowhere where it is unpacked.
        fs::copy(env!("CARGO_BIN_EXE_zfold"), inside.join("zfold")).expect("copied");
        let archive = format!("{name}.tar.gz");
        let shell = format!(
            "tar -czf {archive} {name} && rm -r {name} && : >zfold-0.1.0.crate && \
             sha256sum -- *.crate *.tar.gz >SHA256SUMS"
        );
        let made = Command::new("sh").args(["-c", &shell]).current_dir(folder.path()).status();
        assert!(made.expect("a shell").success());
        Self(folder)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.0.path()
    }

    /// Returns the archive with the program.
    pub(crate) fn archive(&self) -> PathBuf {
        let mut files = fs::read_dir(self.folder()).expect("a folder").flatten();
        let archive = files.find(|file| file.file_name().to_string_lossy().ends_with(".tar.gz"));
        archive.expect("it was made").path()
    }

    /// Returns the sum of the archive.
    pub(crate) fn sum(&self) -> String {
        let sums = fs::read_to_string(self.folder().join("SHA256SUMS")).expect("text");
        let line = sums.lines().find(|line| line.ends_with(".tar.gz")).expect("a sum");
        line.split(' ').next().expect("a word").to_owned()
    }

    /// Serves the files by https; `None` without Python.
    pub(crate) fn serve(&self) -> Option<Served> {
        let name = "localhost".to_owned();
        let made = rcgen::generate_simple_self_signed([name]).expect("a certificate");
        let folder = tempfile::tempdir().expect("a folder");
        let (certificate, key) = (folder.path().join("certificate"), folder.path().join("key"));
        fs::write(&certificate, made.cert.pem()).expect("written");
        fs::write(&key, made.signing_key.serialize_pem()).expect("written");
        let mut server = Command::new("python3");
        server.args(["-c", SERVER]).arg(self.folder()).arg(&certificate).arg(&key);
        let (server, ports) = Killed::ready(server.stderr(Stdio::null()));
        let (safe, plain) = ports.split_once(' ')?;
        let address = format!("https://localhost:{safe}");
        Some(Served {
            _server: server,
            folder,
            address,
            plain: format!("http://localhost:{plain}"),
        })
    }
}

/// Serves a folder by https and by http, and prints both ports. Below `/away`, https leads to http.
const SERVER: &str = r#"
import functools, http.server, ssl, sys, threading
folder, certificate, key = sys.argv[1:]
class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        if not self.path.startswith("/away/"):
            return super().do_GET()
        self.send_response(302)
        self.send_header("Location", "http://localhost:%d%s" % (plain.server_port, self.path[5:]))
        self.end_headers()
serve = functools.partial(Handler, directory=folder)
plain, safe = (http.server.ThreadingHTTPServer(("localhost", 0), serve) for _ in range(2))
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
safe.socket = context.wrap_socket(safe.socket, server_side=True)
print(safe.server_port, plain.server_port, flush=True)
threading.Thread(target=plain.serve_forever, daemon=True).start()
safe.serve_forever()
"#;

/// A server of a release; ends with this.
pub(crate) struct Served {
    _server: Killed,
    folder: TempDir,
    /// Its address.
    pub(crate) address: String,
    /// The same without TLS.
    pub(crate) plain: String,
}

impl Served {
    /// Returns the file of the certificate that clients must trust.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.folder.path().join("certificate")
    }
}
