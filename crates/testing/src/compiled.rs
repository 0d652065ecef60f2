//! C programs of tests, compiled when the test runs.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// A program, and the folder it lies in; all users may run it.
pub struct Compiled {
    pub program: PathBuf,
    _folder: TempDir,
}

/// Compiles a program, which gets the name of its source; an error is the compiler's message.
pub fn compile(source: &Path, options: &[&str]) -> Result<Compiled, String> {
    let folder = tempfile::tempdir().expect("a directory");
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).expect("it is ours");
    let program = folder.path().join(source.file_stem().expect("a file"));
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-pthread"]).args(options).arg("-o").arg(&program).arg(source);
    let output = cc.stdin(Stdio::null()).output().map_err(|error| format!("cc: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    output
        .status
        .success()
        .then_some(Compiled { program, _folder: folder })
        .ok_or(said.into_owned())
}

/// Compiles a program from its text.
pub fn compile_text(name: &str, text: &str) -> Result<Compiled, String> {
    let folder = tempfile::tempdir().expect("a directory");
    let source = folder.path().join(name).with_extension("c");
    std::fs::write(&source, text).expect("written");
    compile(&source, &[])
}
