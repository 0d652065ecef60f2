//! Secrets: those in this process's memory, and those that it is started with.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// The beginning of variables that are zfold's alone.
const OWN: &[u8] = b"ZFOLD_";

/// Longest credential that is read, in bytes.
const CREDENTIAL_LEN_MAX: u64 = 64 << 10;

/// Keeps the memory of this process from others of its user, which could read it as that of any
/// process of theirs, and from core files. For processes that hold the memory of other programs:
/// some of these protect their memory, and so must the process that keeps it.
///
/// The limit of core files stays: the programs that this process starts inherit that one, and none
/// of this.
pub(crate) fn keep_memory() {
    // It cannot fail: every kernel knows the value.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Takes zfold's own variables, such as passwords, out of the environment of another program.
pub(crate) fn without_own_variables(command: &mut Command) -> &mut Command {
    for (name, _) in env::vars_os() {
        if is_own(&name) {
            command.env_remove(name);
        }
    }
    command
}

fn is_own(name: &OsStr) -> bool {
    name.as_bytes().starts_with(OWN)
}

/// Returns a variable of the environment, or the credential of that name that systemd has passed
/// on (`LoadCredential=`), without the end of its line.
pub(crate) fn variable(name: &str) -> Option<String> {
    env::var(name).ok().or_else(|| credential(&credentials()?, name))
}

fn credentials() -> Option<PathBuf> {
    env::var_os("CREDENTIALS_DIRECTORY").filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

fn credential(folder: &Path, name: &str) -> Option<String> {
    let path = folder.join(name);
    let fits = |found: &fs::Metadata| found.is_file() && found.len() <= CREDENTIAL_LEN_MAX;
    let found = fs::metadata(&path).ok().filter(fits);
    let text = found.and_then(|_| fs::read_to_string(path).ok())?;
    Some(text.strip_suffix('\n').map(str::to_owned).unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_stands_in_for_a_variable() {
        let folder = tempfile::tempdir().expect("a folder");
        for (text, read) in [("secret\n", "secret"), ("secret", "secret"), ("two\n\n", "two\n")] {
            fs::write(folder.path().join("ZFOLD_SOME"), text).expect("written");
            assert_eq!(credential(folder.path(), "ZFOLD_SOME").as_deref(), Some(read));
        }
        assert_eq!(credential(folder.path(), "ZFOLD_OTHER"), None);
    }

    #[test]
    fn only_variables_of_zfold_are_its_own() {
        for (name, own) in
            [("ZFOLD_REDIS_PASSWORD", true), ("AWS_PROFILE", false), ("ZFOLD", false)]
        {
            assert_eq!(is_own(OsStr::new(name)), own, "{name}");
        }
    }
}
