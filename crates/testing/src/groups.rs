//! Control groups that limit memory, of the first version or of the second.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Returns where groups of memory are made.
pub fn folder() -> Option<PathBuf> {
    let first = Path::new("/sys/fs/cgroup/memory");
    let second = Path::new("/sys/fs/cgroup");
    let offered = fs::read_to_string(second.join("cgroup.subtree_control")).unwrap_or_default();
    let second = offered.split_whitespace().any(|name| name == "memory").then_some(second);
    first.is_dir().then_some(first).or(second).map(Path::to_owned)
}

/// A group with a limit of memory and no swap. What is left in it ends with this.
#[derive(Debug)]
pub struct Group(PathBuf);

impl Group {
    /// Makes one whose name is not in use; `None`: it cannot be made here.
    pub fn new(name: &str, bytes: u64) -> Option<Self> {
        let path = folder()?.join(format!("zfold-test-{name}-{}", std::process::id()));
        fs::create_dir(&path).ok()?;
        let group = Self(path);
        let is_second = group.0.join("memory.max").exists();
        let names = match is_second {
            true => ["memory.max", "memory.swap.max"],
            false => ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"],
        };
        let swap = if is_second { 0 } else { bytes };
        fs::write(group.0.join(names[0]), bytes.to_string()).ok()?;
        // Without swap there is no such file.
        if group.0.join(names[1]).exists() {
            fs::write(group.0.join(names[1]), swap.to_string()).ok()?;
        }
        Some(group)
    }

    /// Returns a command that does the same in the group.
    pub fn inside(&self, command: &Command) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo $$ >\"$0\" && exec \"$@\""]).arg(self.0.join("cgroup.procs"));
        shell.arg(command.get_program()).args(command.get_args());
        shell
    }

    /// Returns the processes in it.
    pub fn processes(&self) -> Vec<String> {
        let list = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        list.lines().map(str::to_owned).collect()
    }

    /// Returns how many processes the kernel has killed in it for want of memory.
    pub fn kills(&self) -> Option<u64> {
        ["memory.oom_control", "memory.events"].iter().find_map(|name| {
            let text = fs::read_to_string(self.0.join(name)).ok()?;
            text.lines().find_map(|line| line.strip_prefix("oom_kill "))?.parse().ok()
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..100 {
            for process in self.processes() {
                let pid = process.parse().ok().and_then(rustix::process::Pid::from_raw);
                let kill = rustix::process::Signal::KILL;
                let _ = pid.map(|pid| rustix::process::kill_process(pid, kill));
            }
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
