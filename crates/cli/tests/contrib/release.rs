//! A release to install from: what `contrib/package` makes for this machine, with the program that
//! is tested, and a server for it.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

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

    /// Serves the files by HTTP as long as this process lives; returns the address.
    pub(crate) fn serve(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let folder = self.folder().to_owned();
        std::thread::spawn(move || {
            for mut client in listener.incoming().flatten() {
                let mut lines = BufReader::new(&client).lines().map_while(Result::ok);
                let wanted = lines.next().unwrap_or_default();
                lines.take_while(|line| !line.is_empty()).for_each(drop);
                let name = wanted.split(' ').nth(1).unwrap_or_default().trim_start_matches('/');
                let (status, body) = match fs::read(folder.join(name)) {
                    Ok(body) => ("200 OK", body),
                    Err(_) => ("404 Not Found", Vec::new()),
                };
                let head = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                // A client that is gone wants nothing.
                let _ = client.write_all(head.as_bytes()).and_then(|()| client.write_all(&body));
            }
        });
        address
    }
}
