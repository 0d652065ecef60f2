//! The reaction when memory cannot be managed here.

use std::fs;
use std::path::Path;

use rustix::process::geteuid;
use zfold_run::Denied;

const DEVICE: &str = "/dev/userfaultfd";

/// Returns why it is denied, and what grants it to this user.
pub(super) fn why(denied: &Denied) -> String {
    let why = match denied {
        Denied::Permission => "not permitted to handle the kernel's own page faults".to_owned(),
        Denied::Tracing(_) | Denied::Descriptors(_) | Denied::Filters(_) => denied.to_string(),
        denied => return denied.to_string(),
    };
    let (here, containers) = (here(denied), containers());
    let (of_here, of_container) = match is_container() {
        true if lacks_device(denied) => (None, containers.first()),
        true => (here.first(), containers.first()),
        false => (here.first(), containers.first().filter(|_| here.is_empty())),
    };
    let grants: Vec<&str> = of_here.into_iter().chain(of_container).map(|s| &**s).collect();
    format!("{why}; grant it with: {}", grants.join(", or: "))
}

/// Returns whether it is denied for want of the device, which only its flags give a container.
fn lacks_device(denied: &Denied) -> bool {
    matches!(denied, Denied::Permission) && !Path::new(DEVICE).exists()
}

/// Returns commands, flags of containers and rules that grant what is denied.
pub(super) fn remedies(denied: &Denied) -> Vec<String> {
    match denied {
        Denied::Permission | Denied::Tracing(_) | Denied::Descriptors(_) | Denied::Filters(_) => {
            here(denied).into_iter().chain(containers()).collect()
        }
        Denied::Processes(_) => vec!["ulimit -u unlimited".to_owned()],
        _ => Vec::new(),
    }
}

/// Returns what grants it on this machine outside of a container.
fn here(denied: &Denied) -> Vec<String> {
    match denied {
        Denied::Permission => {
            let user = geteuid().as_raw();
            let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
            let grant = |user: u64| format!("sudo setfacl -m u:{user}:rw {DEVICE}");
            let grant = match host_user(&map, user) {
                // The number of a user in here means another user outside.
                Some(host) => format!("on the host: {}", grant(host)),
                None if Path::new(DEVICE).exists() => grant(user.into()),
                None => "sudo sysctl vm.unprivileged_userfaultfd=1".to_owned(),
            };
            vec![grant, "udev: KERNEL==\"userfaultfd\", GROUP=\"zfold\", MODE=\"0660\"".to_owned()]
        }
        Denied::Tracing(_) => vec!["sudo sysctl kernel.yama.ptrace_scope=1".to_owned()],
        _ => Vec::new(),
    }
}

/// Returns what gives a container the rights of a run.
fn containers() -> Vec<String> {
    let flags = "run --device /dev/userfaultfd --cap-add SYS_PTRACE";
    vec![
        format!("docker {flags}"),
        format!("podman {flags}"),
        "Kubernetes: a device plugin for /dev/userfaultfd, and \
         securityContext.capabilities.add [SYS_PTRACE]"
            .to_owned(),
    ]
}

/// Returns whether this looks like a container, whose flags matter more than the machine's.
fn is_container() -> bool {
    let marks = ["/.dockerenv", "/run/.containerenv", "/var/run/secrets/kubernetes.io"];
    // All runtimes filter system calls; hardly anybody else does that to a shell.
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let is_filtered = status.lines().any(|line| line == "Seccomp:\t2");
    is_filtered || marks.iter().any(|mark| Path::new(mark).exists())
}

/// Returns the number that a user of a user namespace has outside of it; `None` if the namespace
/// maps nobody to another number.
fn host_user(map: &str, number: u32) -> Option<u64> {
    let ranges = map.lines().filter_map(|line| {
        let mut fields = line.split_whitespace().map(str::parse::<u64>);
        let mut field = || fields.next()?.ok();
        Some((field()?, field()?, field()?))
    });
    let found = ranges.into_iter().find_map(|(inside, outside, len)| {
        let at = u64::from(number).checked_sub(inside).filter(|at| *at < len)?;
        Some(outside + at)
    });
    found.filter(|host| *host != u64::from(number))
}

/// Returns what to do about a process that cannot be managed for this reason.
pub(super) fn remedy(reason: &str) -> &'static str {
    let remedies = [
        ("32-bit", "run a 64-bit build of it"),
        ("CLONE_UNTRACED", "limit its memory by a cgroup, or run it without zfold"),
        (
            "filter",
            "run zfold as root and outside of a container, or the program without its sandbox",
        ),
        ("descriptor", "raise the limit of open files (ulimit -n)"),
        ("socket", "allow pidfd_getfd (docker run --cap-add SYS_PTRACE)"),
        ("no room for staging", "raise the limits of its memory (ulimit -v and -d)"),
        ("no room", "it uses the addresses that zfold needs: run it without zfold"),
        ("pids.max", "allow more (pids.max, docker run --pids-limit, TasksMax=)"),
        ("could not be started", "raise the limit of processes (ulimit -u), or run it unsandboxed"),
        ("userfaultfd", "see zfold check"),
    ];
    let found = remedies.iter().find(|(part, _)| reason.contains(part));
    found.map_or("docs/use/memory-limits.md lists what cannot be managed", |(_, remedy)| remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_namespace_names_the_hosts_user() {
        assert_eq!(host_user("         0          0 4294967295\n", 0), None);
        assert_eq!(host_user("0 100000 65536\n", 7), Some(100_007));
        assert_eq!(host_user("0 1000 1\n1 100000 65536\n", 1), Some(100_000));
        assert_eq!(host_user("0 100000 65536\n", 70_000), None, "nobody's");
        assert_eq!(host_user("", 0), None);
    }

    #[test]
    fn every_refusal_has_what_grants_it() {
        let error = || std::io::Error::from_raw_os_error(1);
        for denied in [Denied::Permission, Denied::Tracing(error()), Denied::Descriptors(error())] {
            let grants = remedies(&denied);
            assert!(
                grants.iter().any(|grant| grant.starts_with("docker run --device")),
                "{denied}"
            );
            let by_flags = is_container() && lacks_device(&denied);
            let first = if by_flags { &containers()[0] } else { &grants[0] };
            assert!(why(&denied).contains(&format!("; grant it with: {first}")));
        }
        assert_eq!(remedy("it is a 32-bit program"), "run a 64-bit build of it");
        assert!(remedy("something new").contains("docs/use/memory-limits.md"));
    }
}
