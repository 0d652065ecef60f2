//! What happens in which container.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::tempdir;

use crate::bundle::{Container, DEVICE, HOST_UID, runtimes};
use crate::common::{assert_line, needs, skip};

/// Makes 140 MiB that compress well and checks them.
const LARGE: &str = "
pages = [bytes([n % 251]) * 4096 for n in range(35000)]
print(all(page[0] == n % 251 for n, page in enumerate(pages)))
";

/// Makes 117 MiB that compress to a quarter.
const MIXED: &str = "
import os
pages = [os.urandom(1024) * 4 for n in range(30000)]
print(all(page[:1024] == page[3072:] for page in pages))
";

/// Makes 70 MiB that compress to a quarter, and forks: the child checks them while half of them are
/// made anew, which the kernel copies without asking anybody.
const FORKED: &str = "
import os
make = lambda: os.urandom(1024) * 4
good = lambda: all(page[:1024] == page[3072:] for page in pages)
pages = [bytearray(make()) for n in range(18000)]
child = os.fork()
if child == 0:
    os._exit(0 if good() else 1)
for n in range(0, 18000, 2):
    pages[n][:] = make()
print(os.waitpid(child, 0)[1] == 0 and good())
";

const MIB: u64 = 1 << 20;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn document(output: &Output) -> Value {
    let said = text(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// Returns a container with what `zfold check` says to add; says so where the host has no device.
fn granted() -> Option<Container> {
    if !Path::new(DEVICE).exists() {
        skip("no /dev/userfaultfd on this machine");
        return None;
    }
    let device = Some(PathBuf::from(DEVICE));
    Some(Container { traces: true, device, ..Container::default() })
}

#[test]
fn by_default_a_run_is_refused_in_one_line_that_names_the_flags() {
    let container = Container::default();
    for runtime in runtimes() {
        let line = ["run", "--limit", "64MiB", "--", "echo", "ran"];
        let output = container.zfold(runtime, &line);
        let flags = "docker run --device /dev/userfaultfd --cap-add SYS_PTRACE";
        assert_line(&output, 125, &["grant it with: ", flags]);
        assert!(output.stdout.is_empty());
        let check = container.zfold(runtime, &["check", "--json"]);
        assert_eq!(check.status.code(), Some(1));
        let document = document(&check);
        assert_eq!(document["run"], false);
        assert!(document["needs"].to_string().contains(flags), "{document}");
        let line = ["run", "--best-effort", "--", "echo", "ran"];
        let output = container.zfold(runtime, &line);
        assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(0), "ran\n"));
        assert!(text(&output.stderr).contains("running without a limit"));
    }
}

#[test]
fn with_one_flag_of_two_it_is_refused_as_well() {
    let Some(granted) = granted() else { return };
    for runtime in runtimes() {
        let container = Container { traces: false, ..granted.clone() };
        let output = container.zfold(runtime, &["run", "--limit", "64MiB", "--", "true"]);
        assert_line(&output, 125, &["pidfd_getfd", "--cap-add SYS_PTRACE"]);
        let container = Container { device: None, ..granted.clone() };
        let output = container.zfold(runtime, &["run", "--limit", "64MiB", "--", "true"]);
        assert_line(&output, 125, &["page faults", "--device /dev/userfaultfd"]);
    }
}

#[test]
fn with_both_flags_a_program_is_managed() {
    let Some(container) = granted() else { return };
    for runtime in runtimes() {
        let check = container.zfold(runtime, &["check", "--json"]);
        assert_eq!((check.status.code(), &document(&check)["run"]), (Some(0), &true.into()));
        let line = ["run", "--limit", "64MiB", "--report=json", "--", "python3", "-c", LARGE];
        let output = container.zfold(runtime, &line);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(0), "True\n"), "{said}");
        let report: Value = serde_json::from_str(&said).expect("a report");
        assert!(report["managed"].as_u64() > Some(0) && report["unmanaged_total"] == 0, "{report}");
        assert!(report["loads"].as_u64() > Some(0), "{report}");
    }
}

#[test]
fn in_a_user_namespace_the_hosts_user_needs_the_device() {
    let Some(granted) = granted() else { return };
    let folder = tempdir().expect("a folder");
    let device = folder.path().join("userfaultfd");
    // A node of its own, so that nobody else gets the right.
    let copied = Command::new("cp").arg("-a").arg(DEVICE).arg(&device).status();
    needs!(copied.is_ok_and(|status| status.success()), "no device node can be made here");
    for runtime in runtimes() {
        let container = Container { mapped: true, ..granted.clone() };
        let line = ["run", "--limit", "64MiB", "--", "true"];
        let host = format!("on the host: sudo setfacl -m u:{HOST_UID}:rw {DEVICE}");
        assert_line(&container.zfold(runtime, &line), 125, &[&host]);
        std::os::unix::fs::chown(&device, Some(HOST_UID), Some(HOST_UID)).expect("root may");
        let container = Container { device: Some(device.clone()), ..container };
        let check = container.zfold(runtime, &["check"]);
        assert_eq!(check.status.code(), Some(0), "{}", text(&check.stdout));
        let line = ["run", "--limit", "64MiB", "--", "python3", "-c", LARGE];
        let output = container.zfold(runtime, &line);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(0), "True\n"), "{said}");
    }
}

#[test]
fn a_program_that_is_killed_alone_finishes_in_the_same_container() {
    let Some(granted) = granted() else { return };
    let container = Container { memory: Some(96 * MIB), ..granted };
    for runtime in runtimes() {
        let alone = container.run(runtime, &["python3", "-c", LARGE]);
        needs!(
            !alone.status.success(),
            "no limit of memory is enforced here (swap, or no controller)"
        );
        assert_eq!(alone.status.code(), Some(137), "{}", text(&alone.stderr));
        let runs = [("40MiB", LARGE), ("auto", LARGE), ("auto", MIXED), ("auto", FORKED)];
        for (limit, program) in runs {
            let line = ["run", "--limit", limit, "--report=json", "--", "python3", "-c", program];
            let output = container.zfold(runtime, &line);
            let said = text(&output.stderr);
            let ended = (output.status.code(), text(&output.stdout));
            assert_eq!(ended, (Some(0), "True\n".to_owned()), "--limit {limit}: {said}");
            let report: Value = serde_json::from_str(&said).expect("a report");
            let auto = &report["limit_auto"];
            assert_eq!(auto.is_object(), limit == "auto", "{report}");
            if limit == "auto" {
                let bytes = |name: &str| auto[name].as_u64().expect("bytes");
                assert!(bytes("left_at_start_bytes") <= 96 * MIB, "{auto}");
                assert!(bytes("most_limit_bytes") < bytes("left_at_start_bytes"), "{auto}");
                assert!(bytes("least_limit_bytes") < bytes("most_limit_bytes"), "{auto}");
            }
        }
    }
}
