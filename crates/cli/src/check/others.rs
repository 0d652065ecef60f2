//! The needs of regions and disks.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use rustix::process::{Resource, getrlimit};
use zfold_region::{MemoryOptions, Region, RegionError};

use super::need::{Need, Use};
use crate::shared::rights::has_capability;

const FUSE: &str = "/dev/fuse";

/// Capabilities, by their numbers.
const IPC_LOCK: u32 = 14;
const SYS_ADMIN: u32 = 21;
const SYS_RESOURCE: u32 = 24;

/// Returns what everything but a run needs.
pub(super) fn others() -> Vec<Need> {
    vec![
        region(),
        fuse(open(FUSE)),
        of(
            "mounting by FUSE",
            Use::Fuse,
            has_capability(SYS_ADMIN) || has_program("fusermount3"),
            "neither CAP_SYS_ADMIN nor fusermount3",
            &["sudo apt-get install fuse3", "docker run --cap-add SYS_ADMIN"],
        ),
        of(
            "locked memory",
            Use::Lock,
            has_capability(IPC_LOCK) || getrlimit(Resource::Memlock).current.is_none(),
            "the limit is too low to lock all of a server's memory",
            &[
                "ulimit -l unlimited",
                "systemd: LimitMEMLOCK=infinity",
                "docker run --ulimit memlock=-1",
            ],
        ),
        of(
            "being an I/O flusher",
            Use::Lock,
            has_capability(SYS_RESOURCE),
            "it takes CAP_SYS_RESOURCE",
            &[
                "sudo setcap cap_sys_resource+ep $(command -v zfold)",
                "docker run --cap-add SYS_RESOURCE",
            ],
        ),
    ]
}

/// The remedy depends on the error of opening the device.
fn fuse(opened: io::Result<File>) -> Need {
    let container = "docker run --device /dev/fuse --cap-add SYS_ADMIN";
    let (why, remedy) = match &opened {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            ("this user may not open it", "sudo setfacl -m u:$USER:rw /dev/fuse")
        }
        _ => ("there is no such device", "sudo modprobe fuse"),
    };
    of(FUSE, Use::Fuse, opened.is_ok(), why, &[remedy, container])
}

/// Something that its user cannot do without.
fn of(name: &'static str, by: Use, found: bool, why: &str, remedies: &[&str]) -> Need {
    let found = if found { Ok("") } else { Err(why.to_owned()) };
    Need::new(name, &[by], true, found, remedies)
}

/// Makes a region and uses it.
fn region() -> Need {
    let tried = Region::new(1 << 20, &MemoryOptions::new(16 << 20)).map(|mut region| {
        region.as_mut_slice::<u64>()[1000] = 7;
    });
    let remedies: &[&str] = match &tried {
        Err(RegionError::Kernel(_)) => &["boot Linux 6.8 or later"],
        Err(RegionError::PageSize(_)) => &["boot a kernel with smaller pages"],
        _ => &[
            "docker run --security-opt seccomp=PROFILE, where PROFILE allows userfaultfd",
            "Kubernetes: a securityContext.seccompProfile that allows userfaultfd",
        ],
    };
    let found = tried.map(|()| "by the call").map_err(|error| error.to_string());
    Need::new("userfaultfd in a process", &[Use::Region], true, found, remedies)
}

fn open(path: &str) -> io::Result<File> {
    File::options().read(true).write(true).open(path)
}

fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders.any(|folder| folder.join(name).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_there_needs_a_right_and_no_module() {
        for (error, remedy) in [
            (io::ErrorKind::PermissionDenied, "sudo setfacl -m u:$USER:rw /dev/fuse"),
            (io::ErrorKind::NotFound, "sudo modprobe fuse"),
        ] {
            assert_eq!(fuse(Err(error.into())).remedies[0], remedy);
        }
    }
}
