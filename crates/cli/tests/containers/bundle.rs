//! A container: what it may do, and its run by runc or crun.
//!
//! Its filter of system calls is the default of podman, which Debian's package
//! golang-github-containers-common holds, without what Docker's default denies beyond it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use tempfile::TempDir;
use zfold_testing::executable;

use crate::common::skip;

/// Where the package has the filter.
const PROFILE: &str = "/usr/share/containers/seccomp.json";

/// What Docker's default allows only to containers with CAP_SYS_PTRACE.
const TRACERS_ONLY: [&str; 3] = ["kcmp", "pidfd_getfd", "process_madvise"];

/// The capabilities of a container that was given none.
const CAPABILITIES: [&str; 14] = [
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_MKNOD",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_RAW",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
];

/// The device that gives the faults of the kernel.
pub(crate) const DEVICE: &str = "/dev/userfaultfd";

/// The host's number of the container's root in a user namespace.
pub(crate) const HOST_UID: u32 = 100_000;

/// A container to be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Container {
    /// `--cap-add SYS_PTRACE`.
    pub(crate) traces: bool,
    /// `--device`: the node on the host.
    pub(crate) device: Option<PathBuf>,
    /// `--memory`, in bytes.
    pub(crate) memory: Option<u64>,
    /// With a user namespace of its own.
    pub(crate) mapped: bool,
}

/// Returns the runtimes that work here; says what is missing if there are none.
pub(crate) fn runtimes() -> Vec<&'static str> {
    if !rustix::process::geteuid().is_root() {
        skip("containers need root");
        return Vec::new();
    }
    if !Path::new(PROFILE).exists() {
        skip("no default filter of containers (golang-github-containers-common)");
        return Vec::new();
    }
    let mut complaints = Vec::new();
    let works = |runtime: &&'static str| {
        let installed = Command::new(runtime).arg("--version").output();
        if !installed.is_ok_and(|output| output.status.success()) {
            return false;
        }
        let output = Container::default().run(runtime, &["true"]);
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        complaints.push(format!("{runtime} starts no container here: {said}"));
        output.status.success()
    };
    let found: Vec<_> = ["runc", "crun"].into_iter().filter(works).collect();
    if found.is_empty() {
        complaints.push("no runtime for containers that works (runc, crun)".to_owned());
        skip(complaints.join("; "));
    }
    found
}

impl Container {
    /// Runs `zfold` in it.
    pub(crate) fn zfold(&self, runtime: &str, arguments: &[&str]) -> Output {
        self.run(runtime, &[&["/zfold/zfold"], arguments].concat())
    }

    /// Runs a program of this machine in it.
    pub(crate) fn run(&self, runtime: &str, line: &[&str]) -> Output {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("zfold-test-{}-{number}", std::process::id());
        let bundle = tempfile::tempdir().expect("a folder");
        // The container's root, which may be another user here, goes through it.
        for folder in [bundle.path(), &bundle.path().join("rootfs")] {
            let _ = fs::create_dir(folder);
            let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            fs::set_permissions(folder, open).expect("a folder of ours");
        }
        if self.mapped {
            // It makes the places for its mounts there.
            let root = bundle.path().join("rootfs");
            std::os::unix::fs::chown(root, Some(HOST_UID), Some(HOST_UID)).expect("root may");
        }
        let config = self.config(&bundle, &name, line).to_string();
        fs::write(bundle.path().join("config.json"), config).expect("written");
        let mut command = Command::new(runtime);
        command.args(["run", "--bundle"]).arg(bundle.path()).arg(&name);
        command.output().expect("it starts")
    }

    fn capabilities(&self) -> Vec<&'static str> {
        let added = self.traces.then_some("CAP_SYS_PTRACE");
        CAPABILITIES.into_iter().chain(added).collect()
    }

    /// Returns the container as the runtime reads it.
    #[expect(clippy::too_many_lines, reason = "one document")]
    fn config(&self, bundle: &TempDir, name: &str, line: &[&str]) -> Value {
        let capabilities = self.capabilities();
        let program = Path::new(env!("CARGO_BIN_EXE_zfold"));
        let mut mounts = vec![
            json!({ "destination": "/proc", "type": "proc", "source": "proc" }),
            json!({ "destination": "/sys", "type": "sysfs", "source": "sysfs",
                "options": ["nosuid", "noexec", "nodev", "ro"] }),
            json!({ "destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup",
                "options": ["nosuid", "noexec", "nodev", "relatime", "ro"] }),
            json!({ "destination": "/dev", "type": "tmpfs", "source": "tmpfs",
                "options": ["nosuid", "mode=755"] }),
            json!({ "destination": "/tmp", "type": "tmpfs", "source": "tmpfs",
                "options": ["mode=1777"] }),
        ];
        let mut bind = |from: &Path, to: &str| {
            if let Ok(from) = fs::canonicalize(from) {
                mounts.push(json!({ "destination": to, "type": "bind", "source": from,
                    "options": ["rbind", "ro"] }));
            }
        };
        for folder in ["/usr", "/etc", "/bin", "/lib", "/lib64"] {
            bind(Path::new(folder), folder);
        }
        // The program alone, where everybody may go, not the folder that it was built in.
        let copy = bundle.path().join("zfold");
        fs::hard_link(program, &copy).unwrap_or_else(|_| executable::copy(program, &copy, "755"));
        mounts.push(json!({ "destination": "/zfold/zfold", "type": "bind", "source": copy,
            "options": ["bind", "ro"] }));
        let mut namespaces = ["pid", "ipc", "uts", "mount", "network"].to_vec();
        let mut allowed = vec![json!({ "allow": false, "access": "rwm" })];
        let mut allow = |major: u64, minor: u64| {
            allowed.push(json!({ "allow": true, "type": "c", "major": major, "minor": minor,
                "access": "rwm" }));
        };
        [3, 5, 8, 9].into_iter().for_each(|minor| allow(1, minor));
        if let Some(device) = &self.device {
            let number = fs::metadata(device).expect("a device").rdev();
            allow(u64::from(rustix::fs::major(number)), u64::from(rustix::fs::minor(number)));
            mounts.push(json!({ "destination": DEVICE, "type": "bind", "source": device,
                "options": ["bind"] }));
        }
        if self.mapped {
            namespaces.push("user");
        }
        let namespaces: Vec<_> = namespaces.iter().map(|kind| json!({ "type": kind })).collect();
        let mut linux = json!({
            "namespaces": namespaces,
            "seccomp": filter(&capabilities),
            "cgroupsPath": format!("/{name}"),
            "resources": { "devices": allowed },
        });
        if self.mapped {
            let map = json!([{ "containerID": 0, "hostID": HOST_UID, "size": 65_536 }]);
            linux["uidMappings"] = map.clone();
            linux["gidMappings"] = map;
        }
        if let Some(bytes) = self.memory {
            linux["resources"]["memory"] = json!({ "limit": bytes });
        }
        json!({
            "ociVersion": "1.0.2",
            "process": {
                "terminal": false,
                "user": { "uid": 0, "gid": 0 },
                "args": line,
                "env": ["PATH=/usr/bin:/bin", "HOME=/tmp"],
                "cwd": "/tmp",
                "capabilities": { "bounding": capabilities, "effective": capabilities,
                    "permitted": capabilities },
            },
            "root": { "path": "rootfs" },
            "hostname": "container",
            "mounts": mounts,
            "linux": linux,
        })
    }
}

/// Returns the default filter as a runtime reads it, for a container with these capabilities.
fn filter(capabilities: &[&str]) -> Value {
    let text = fs::read_to_string(PROFILE).expect("a filter");
    let profile: Value = serde_json::from_str(&text).expect("JSON");
    let has = |condition: &Value, found: &dyn Fn(&str) -> bool| {
        let list = condition.as_array().map(Vec::as_slice).unwrap_or_default();
        (list.is_empty(), list.iter().filter_map(Value::as_str).any(found))
    };
    let capability = |name: &str| capabilities.contains(&name);
    let here = |name: &str| name == "amd64";
    let applies = |rule: &&Value| {
        let (includes, excludes) = (&rule["includes"], &rule["excludes"]);
        let needed = [has(&includes["caps"], &capability), has(&includes["arches"], &here)];
        let refused = [has(&excludes["caps"], &capability), has(&excludes["arches"], &here)];
        needed.iter().all(|(none, met)| *none || *met) && refused.iter().all(|(_, met)| !met)
    };
    let may_trace = capability("CAP_SYS_PTRACE");
    let of = |rule: &Value| {
        let mut rule = rule.clone();
        if let Some(names) = rule["names"].as_array_mut() {
            names.retain(|name| may_trace || !TRACERS_ONLY.iter().any(|denied| name == denied));
        }
        let kept = ["names", "action", "args", "errnoRet"];
        let fields = rule.as_object().cloned().unwrap_or_default();
        let fields = fields.into_iter().filter(|(name, value)| {
            kept.contains(&name.as_str()) && value.as_array().is_none_or(|list| !list.is_empty())
        });
        Value::Object(fields.collect())
    };
    let rules = profile["syscalls"].as_array().expect("rules").iter().filter(applies).map(of);
    json!({
        "defaultAction": profile["defaultAction"],
        "defaultErrnoRet": 1,
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
        "syscalls": rules.filter(|rule| rule["names"].is_array()).collect::<Vec<_>>(),
    })
}
