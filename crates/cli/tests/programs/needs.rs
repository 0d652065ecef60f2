//! What the tests need: programs, and a system that lets `zfold run` work.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{LazyLock, MutexGuard};

use zfold_pool::Lock;

use crate::common::{self, skip};

/// Returns whether the programs are to do more than is needed to see that they work.
pub(crate) fn long() -> bool {
    std::env::var_os("ZFOLD_LONG").is_some_and(|told| told == "1")
}

/// Returns `short`, or `long` where more is to be done.
pub(crate) fn sized<T>(short: T, long: T) -> T {
    if self::long() { long } else { short }
}

/// Returns as `ready` does, for a test that takes too long to run with the others; says so where it
/// is not to run.
pub(crate) fn ready_for_long(programs: &[&str]) -> bool {
    if !long() {
        skip("takes long (ZFOLD_LONG=1 runs it, and .ci/nightly does)");
        return false;
    }
    ready(programs)
}

/// Returns whether `zfold run` and all of `programs` are there, and says what is not.
pub(crate) fn ready(programs: &[&str]) -> bool {
    static DENIED: LazyLock<Option<String>> = LazyLock::new(denied);
    if let Some(reason) = &*DENIED {
        skip(reason);
        return false;
    }
    installed(programs)
}

/// Returns the line that says why `zfold run` is not permitted here, if it is not.
fn denied() -> Option<String> {
    let output = common::zfold(&["run", "--limit", "1GiB", "--", "true"]);
    if output.status.success() {
        return None;
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let reasons = ["not permitted to handle", "this kernel"];
    assert!(reasons.iter().any(|reason| said.contains(reason)), "{}: {said}", output.status);
    Some(said)
}

/// Returns whether all of `programs` are installed, and says which is not.
pub(crate) fn installed(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| found(program).next().is_none());
    if let Some(program) = missing {
        skip(format!("{program} is not installed"));
    }
    missing.is_none()
}

/// Returns where programs are looked for: the path, and where Debian puts those of PostgreSQL.
pub(crate) fn path() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let versions = versions.filter_map(|entry| Some(entry.ok()?.path().join("bin")));
    std::env::split_paths(&path).chain(versions).collect()
}

fn found(program: &str) -> impl Iterator<Item = PathBuf> {
    path().into_iter().map(move |dir| dir.join(program)).filter(|path| path.is_file())
}

/// Returns the first Python that has `module`: not the launcher in front of it, of which some are
/// shell programs. Says so if runs do not work here, or there is none.
pub(crate) fn python(module: &str) -> Option<PathBuf> {
    if !ready(&["python3"]) {
        return None;
    }
    let ask = format!("import {module}, sys; print(sys.executable)");
    let python = found("python3").find_map(|python| {
        let output = Command::new(python).args(["-c", &ask]).stderr(Stdio::null()).output().ok()?;
        let answer = String::from_utf8(output.stdout).ok()?;
        (output.status.success()).then(|| PathBuf::from(answer.trim()))
    });
    if python.is_none() {
        skip(format!("no python3 has {module}"));
    }
    python
}

/// Returns the path as text, as arguments are.
pub(crate) fn text(path: &(impl AsRef<OsStr> + ?Sized)) -> &str {
    path.as_ref().to_str().expect("paths of tests are text")
}

/// Returns the path of a file beside these tests.
pub(crate) fn workload(name: &str) -> String {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/workloads");
    text(&dir.join(name)).to_owned()
}

/// Returns a guard that keeps others waiting where times are to mean something.
pub(crate) fn alone() -> Option<MutexGuard<'static, ()>> {
    static ALONE: Lock<()> = Lock::new(());
    // A test that failed has left nothing behind.
    long().then(|| ALONE.lock())
}
