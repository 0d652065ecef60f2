//! The capabilities of this process.

use std::fs;

use rustix::process::{geteuid, getuid};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use super::exit::Failure;

/// Capabilities that reach no process and no file of others.
const HARMLESS: CapabilitySet =
    CapabilitySet::SYS_NICE.union(CapabilitySet::SYS_RESOURCE).union(CapabilitySet::IPC_LOCK);

/// Gives up what this program's file grants to whoever executes it (`setcap`), except what reaches
/// nobody else. With `CAP_SYS_PTRACE` of the file, any user could put a process of root under a
/// limit, execute setuid programs under one, or read what belongs to neither, whatever process of
/// zfold looks first: users may start each of them by itself. So the kernel decides by the rights
/// of the user alone, when it matters. To be called while no other thread runs.
///
/// What root has stays, and so does what a user has been granted by itself (ambient capabilities).
///
/// # Errors
/// The system does not let this process give them up. Or the file is setuid: the programs that
/// zfold starts would have its owner's rights.
pub(crate) fn give_up_those_of_the_file() -> Result<(), Failure> {
    if getuid().is_root() {
        return Ok(());
    }
    if getuid() != geteuid() {
        return Err(Failure::new(
            "this file is setuid, which would give everybody its owner's rights: chmod u-s it, and \
             use sudo",
        ));
    }
    let given_up = capabilities(None).and_then(|has| {
        let kept = kept(has, CapabilitySet::from_bits_retain(set("CapAmb:")));
        if kept == has { Ok(()) } else { set_capabilities(None, kept) }
    });
    given_up.map_err(|error| {
        Failure::new(format!(
            "cannot give up the capabilities of zfold's file: {error}; run a copy without them \
             (setcap -r)"
        ))
    })
}

/// Returns what is left of these sets.
fn kept(has: CapabilitySets, ambient: CapabilitySet) -> CapabilitySets {
    let kept = ambient | HARMLESS;
    let (effective, permitted) = (has.effective & kept, has.permitted & kept);
    CapabilitySets { effective, permitted, ..has }
}

/// Returns whether this process has a capability.
pub(crate) fn has_capability(number: u32) -> bool {
    set("CapEff:") >> number & 1 == 1
}

/// Returns a set of this process's capabilities, by its name with the colon; none if that is not
/// known.
fn set(name: &str) -> u64 {
    bits(&fs::read_to_string("/proc/self/status").unwrap_or_default(), name)
}

/// Returns a set that a process's status shows as bits, by its name with the colon; none if it is
/// not there.
pub(crate) fn bits(status: &str, name: &str) -> u64 {
    let set = status.lines().find_map(|line| line.strip_prefix(name));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_user_has_or_what_reaches_nobody_stays() {
        let all = CapabilitySet::all();
        let has = |permitted| CapabilitySets {
            effective: permitted,
            permitted,
            inheritable: CapabilitySet::empty(),
        };
        assert_eq!(kept(has(all), CapabilitySet::empty()), has(HARMLESS));
        let granted = CapabilitySet::SYS_PTRACE;
        assert_eq!(kept(has(granted), granted), has(granted));
        assert_eq!(kept(has(granted), CapabilitySet::empty()), has(CapabilitySet::empty()));
    }
}
