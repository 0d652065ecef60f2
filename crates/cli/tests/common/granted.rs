//! A plain user under whom programs can be managed.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use tempfile::TempDir;

use crate::common::skip;

/// A plain user with the one right that `zfold check` says is missing: access to
/// `/dev/userfaultfd`. Root makes one, with a device of its own in a mount namespace; a user who
/// has the right is one.
pub(crate) struct Granted(());

impl Granted {
    /// Executes its arguments as that user. The folder is hidden in this namespace only.
    const SCRIPT: &str = "\
mount -t tmpfs -o mode=755 tmpfs /mnt && cp -a /dev/userfaultfd /mnt/device && \
chown 65534 /mnt/device && mount --bind /mnt/device /dev/userfaultfd && \
exec setpriv --reuid=65534 --regid=65534 --clear-groups -- \"$@\"";

    /// Returns the user; says so if there can be none.
    pub(crate) fn new() -> Option<Self> {
        let user = Self(());
        let mut works = user.command(env!("CARGO_BIN_EXE_zfold"));
        match works.args(["run", "--limit", "64MiB", "--", "true"]).output() {
            Ok(output) if output.status.success() => return Some(user),
            Ok(output) => skip(String::from_utf8_lossy(&output.stderr).trim()),
            Err(_) => skip("no unshare"),
        }
        None
    }

    /// Returns a folder where this user may write.
    pub(crate) fn folder(&self) -> TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        let open = Permissions::from_mode(0o777);
        std::fs::set_permissions(&folder, open).expect("a folder of ours");
        folder
    }

    /// Returns a program that this user runs.
    pub(crate) fn command(&self, program: &str) -> Command {
        if !rustix::process::geteuid().is_root() {
            return Command::new(program);
        }
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", Self::SCRIPT, "sh", program]);
        command
    }
}
