//! Guests that are restored from images of the program.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use zfold_testing::compiled::compile;
use zfold_testing::skip::installed;

use crate::common::{needs, skip};
use crate::server::{Server, memory};

/// A stand-in for a VMM. Dropping it ends its input, and so the process.
pub(crate) struct Guest {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Guest {
    pub(crate) fn start(program: &Path, socket: &Path, file: &Path) -> Self {
        let mut command = Command::new(program);
        command.arg(socket).arg(file);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("started");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, input, output }
    }

    pub(crate) fn says(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    /// Has it compare all pages again, the last one included.
    pub(crate) fn again(&mut self) -> String {
        self.input.as_mut().expect("it lives").write_all(b"\n").expect("it listens");
        self.says()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        drop(self.input.take());
        // It may have ended.
        let _ = self.child.wait();
    }
}

#[test]
fn guests_are_restored_recorded_and_left_alone_at_the_end() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guest/guest.c");
    needs!(installed(&["cc"]));
    let compiled = compile(&source, &["-Wall", "-Wextra", "-Werror"]);
    let compiled = compiled.unwrap_or_else(|said| panic!("{said}"));
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a.mem");
    memory(&file, 2001, 1);
    let image = format!("web={}", file.display());
    let server = Server::start(tempfile::tempdir().expect("a folder"), &["--image", &image], 1);
    let socket = server.told[0].1.clone();
    server.done(&["guest", "record", "web"]);
    let mut first = Guest::start(&compiled.program, &socket, &file);
    match first.says().as_str() {
        "none" => return skip("no userfaultfd"),
        said => assert_eq!(said, "right"),
    }
    server.done(&["guest", "record", "web", "off"]);
    server.refused(&["guest", "rm", "web"], &["used by a guest"]);
    let stat = server.stat();
    assert_eq!(stat["images"][0]["working_set_pages"], 2000);
    assert_eq!(
        (&stat["guests"][0]["pages_left"], &stat["images"][0]["guests"]),
        (&1.into(), &1.into())
    );
    let text = server.done(&["guest", "stat"]);
    assert!(text.contains("served") && text.contains("web"), "{text}");
    let listed = server.done(&["ps"]);
    assert!(listed.contains("guests: 1 of 1 image"), "{listed}");

    let mut second = Guest::start(&compiled.program, &socket, &file);
    assert_eq!(second.says(), "right");
    // Both have the last page to come.
    server.end();
    assert_eq!((first.again(), second.again()), ("right".to_owned(), "right".to_owned()));
}
