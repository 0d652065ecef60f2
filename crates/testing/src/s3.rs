//! A real server of S3 on loopback: that of moto, which keeps everything in memory.
//!
//! Whether there is one is found out once in a process; each test that may run starts its own.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use crate::process::Killed;
use crate::skip::{free_port, has_loopback, skip};
use crate::wait::PATIENCE;

/// The bucket that every server has.
pub const BUCKET: &str = "pages";

/// Moto looks at no signature; a caller without one sees nothing.
const SIGNED: &str = "Authorization: AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/\
                      aws4_request, SignedHeaders=host, Signature=0";

/// Returns the server's program: that in the path, or the one that `.ci/tools` installs. Looked for
/// once, since it is as slow to say how it is used as to serve.
fn program() -> Option<&'static Path> {
    static PROGRAM: LazyLock<Option<PathBuf>> = LazyLock::new(find);
    PROGRAM.as_deref()
}

fn find() -> Option<PathBuf> {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/moto/bin/moto_server");
    let runs = |program: &PathBuf| {
        let mut command = Command::new(program);
        command.arg("--help").stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|end| end.success())
    };
    [PathBuf::from("moto_server"), installed].into_iter().find(runs)
}

/// Returns whether there is a server, and says so if not.
pub fn ready() -> bool {
    if program().is_none() {
        skip("no moto_server");
    }
    program().is_some() && has_loopback()
}

/// A server with an empty bucket, which ends with this.
pub struct S3 {
    child: Killed,
    port: u16,
}

impl S3 {
    /// Starts a server and waits until it answers.
    pub fn start() -> Self {
        let program = program().expect("looked for before");
        let begun = Instant::now();
        loop {
            let port = free_port();
            let child = Command::new(program)
                .args(["-H", "127.0.0.1", "-p", &port.to_string()])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("moto_server starts");
            let mut server = Self { child: Killed(child), port };
            // It ends if another process has taken the port meanwhile.
            while server.child.try_wait().expect("a status").is_none() {
                if server.ask("PUT", &format!("/{BUCKET}")).is_ok_and(|(status, _)| status == 200) {
                    return server;
                }
                assert!(begun.elapsed() < PATIENCE, "moto_server does not answer");
                thread::sleep(Duration::from_millis(50));
            }
        }
    }

    /// Returns the variables by which programs find the server.
    pub fn variables(&self) -> [(&'static str, String); 4] {
        [
            ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.port)),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ACCESS_KEY_ID", "test".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "hunter2".to_owned()),
        ]
    }

    /// Returns where it listens on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the process that serves.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the names of objects that begin with `prefix`.
    pub fn keys(&self, prefix: &str) -> Vec<String> {
        // As many as one answer has, which is more than tests make.
        let text = self.get(&format!("?list-type=2&prefix={prefix}"));
        let text = String::from_utf8(text).expect("text");
        assert!(text.contains("<IsTruncated>false<"), "{text}");
        let keys = text.split("<Key>").skip(1);
        keys.map(|rest| rest.split('<').next().expect("a part").to_owned()).collect()
    }

    /// Returns the uploads that are neither completed nor aborted.
    pub fn uploads(&self) -> usize {
        let text = String::from_utf8(self.get("?uploads")).expect("text");
        text.matches("<Upload>").count()
    }

    /// Returns an object.
    pub fn get(&self, key: &str) -> Vec<u8> {
        self.find(key).unwrap_or_else(|| panic!("{key} is not there"))
    }

    /// Returns an object if it is there.
    pub fn find(&self, key: &str) -> Option<Vec<u8>> {
        let (status, body) = self.ask("GET", &format!("/{BUCKET}/{key}")).expect("an answer");
        assert!(matches!(status, 200 | 404), "{key}: {status}");
        (status == 200).then_some(body)
    }

    /// Removes an object.
    pub fn delete(&self, key: &str) {
        let (status, _) = self.ask("DELETE", &format!("/{BUCKET}/{key}")).expect("an answer");
        assert_eq!(status, 204, "{key}");
    }

    /// Stores an object.
    pub fn put(&self, key: &str, body: &[u8]) {
        let path = format!("/{BUCKET}/{key}");
        let (status, _) = self.send("PUT", &path, body).expect("an answer");
        assert_eq!(status, 200, "{key}");
    }

    fn ask(&self, method: &str, path: &str) -> std::io::Result<(u16, Vec<u8>)> {
        self.send(method, path, &[])
    }

    /// Sends a request and returns the status and the body of the answer.
    fn send(&self, method: &str, path: &str, body: &[u8]) -> std::io::Result<(u16, Vec<u8>)> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let len = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n{SIGNED}\r\nContent-Length: {len}\
             \r\nConnection: close\r\n\r\n",
            self.port
        );
        stream.write_all(&[head.as_bytes(), body].concat())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let end = answer.windows(4).position(|at| at == b"\r\n\r\n");
        let status = str::from_utf8(answer.get(9..12).unwrap_or_default()).unwrap_or_default();
        match (end, status.parse()) {
            (Some(end), Ok(status)) => Ok((status, answer.split_off(end + 4))),
            _ => Err(std::io::ErrorKind::UnexpectedEof.into()),
        }
    }
}
