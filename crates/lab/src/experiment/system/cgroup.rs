//! A memory cgroup of the experiment's own, of version 1 or 2.
//!
//! Its name has the process and a number that is counted up, so that no two are the same; that is
//! all the atomic is for. The clean-up is registered before the folder is made, and removes it even
//! if this process is killed.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use super::cleanup::{Cleanup, patiently, quoted};
use crate::experiment::Error;

/// A cgroup with a limit of its memory. Dropping it ends the processes in it and removes it.
#[derive(Debug)]
pub(crate) struct Cgroup {
    folder: PathBuf,
    _cleanup: Cleanup,
}

/// Numbers the cgroups of this process. Relaxed: it need only be distinct.
static NUMBER: AtomicU32 = AtomicU32::new(0);

impl Cgroup {
    /// Returns a new cgroup of which the memory, page cache included, is limited.
    ///
    /// # Errors
    /// [`Error::Missing`] without the memory controller or the right to make a cgroup; none is
    /// left then.
    pub(crate) fn limited(bytes: u64) -> Result<Self, Error> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let Some((root, limit)) = hierarchy(&mounts) else {
            return Err(Error::Missing("no memory controller of cgroups is mounted".to_owned()));
        };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = root.join(format!("zfold-lab-{}-{number}", std::process::id()));
        let mut cleanup = Cleanup::new()?;
        let word = quoted(&folder);
        // A v1 cgroup keeps memory that no process unmaps, such as page cache.
        cleanup.promise(&format!(
            "[ ! -d {word} ] || {{ kill -9 $(cat {word}/cgroup.procs); \
             [ ! -e {word}/memory.force_empty ] || echo 0 >{word}/memory.force_empty; {}; }}",
            patiently(&format!("rmdir {word}"))
        ))?;
        fs::create_dir(&folder).map_err(|error| refused(&error))?;
        let cgroup = Self { folder, _cleanup: cleanup };
        fs::write(cgroup.folder.join(limit), bytes.to_string()).map_err(|error| refused(&error))?;
        Ok(cgroup)
    }

    /// Returns a command that runs `program` in the cgroup from its first instruction on.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("sh");
        let script =
            format!("echo $$ >{} && exec \"$@\"", quoted(self.folder.join("cgroup.procs")));
        command.args(["-c", &script, "sh"]).arg(program);
        command
    }
}

/// Returns where cgroups with a memory controller are mounted, and the name of the limit's file.
fn hierarchy(mounts: &str) -> Option<(PathBuf, &'static str)> {
    let find = |kind: &str, with: Option<&str>| {
        let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let mut of_kind = fields.filter(|fields| fields.get(2) == Some(&kind));
        let found = of_kind.find(|fields| {
            let mut options = fields.get(3).copied().unwrap_or_default().split(',');
            with.is_none_or(|wanted| options.any(|option| option == wanted))
        });
        found.and_then(|fields| fields.get(1).map(Path::new).map(Path::to_owned))
    };
    let first = find("cgroup", Some("memory")).map(|root| (root, "memory.limit_in_bytes"));
    first.or_else(|| find("cgroup2", None).map(|root| (root, "memory.max")))
}

fn refused(error: &std::io::Error) -> Error {
    Error::Missing(match error.kind() {
        ErrorKind::PermissionDenied => "only root may make a memory cgroup".to_owned(),
        _ => format!("no memory cgroup: {error}"),
    })
}

#[cfg(test)]
mod tests {

    use super::super::child::run;
    use super::*;

    #[test]
    fn version_1_goes_before_version_2() {
        let first = "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                     cgroup /sys/fs/cgroup/memory cgroup rw,nosuid,memory 0 0\n";
        let second = "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n";
        let found = Some((PathBuf::from("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"));
        assert_eq!(hierarchy(&format!("{second}{first}")), found);
        assert_eq!(hierarchy(second), Some((PathBuf::from("/sys/fs/cgroup"), "memory.max")));
        assert_eq!(hierarchy("cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n"), None);
    }

    #[test]
    fn what_runs_there_ends_with_the_guard() {
        let cgroup = match Cgroup::limited(64 << 20) {
            Ok(cgroup) => cgroup,
            Err(Error::Missing(reason)) => {
                return zfold_testing::skip(reason);
            }
            Err(error) => panic!("{error:?}"),
        };
        let mut command = cgroup.command("cat");
        let inside = run(command.arg("/proc/self/cgroup")).unwrap();
        let name = cgroup.folder.file_name().unwrap().to_string_lossy().into_owned();
        assert!(inside.contains(&name), "{inside}");
        let mut sleeper = cgroup.command("sleep").arg("600").spawn().unwrap();
        let folder = cgroup.folder.clone();
        let procs = || fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        assert!(super::super::child::wait(std::time::Duration::from_secs(60), || {
            procs().contains(&sleeper.id().to_string())
        }));
        drop(cgroup);
        assert!(!sleeper.wait().unwrap().success());
        assert!(!folder.exists());
    }
}
