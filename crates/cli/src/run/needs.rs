//! The needs of a run, each tried as a run does it.

use zfold_run::{Denied, access, may_follow_forks, may_see_accesses, may_trace};

use super::denied::remedies;
use crate::check::need::{Need, Use};
use crate::shared::rights::has_capability;

/// `CAP_SYS_ADMIN`.
const SYS_ADMIN: u32 = 21;

/// Returns what a run needs, found or missing.
pub(crate) fn needs() -> Vec<Need> {
    let (access, tracing) = (access(), may_trace());
    let traced = matches!(tracing, Err(Denied::Traced));
    let refused = |is: fn(&Denied) -> bool| tracing.as_ref().err().filter(|denied| is(denied));
    let denied = access.as_ref().err();
    let is_old = matches!(denied, Some(Denied::Kernel));
    let moves = match is_old {
        true => Err("this kernel cannot move pages by userfaultfd".to_owned()),
        false => Ok("Linux 6.8 or later"),
    };
    let uses = [Use::Run, Use::Region];
    let mut needs =
        vec![Need::new("UFFDIO_MOVE", &uses, true, moves, &["boot Linux 6.8 or later"])];
    // Otherwise it was not tried.
    if !is_old {
        let uses = [Use::Run, Use::Threads, Use::Guest];
        let found = "by /dev/userfaultfd, or by the call";
        needs.push(need("page faults of the kernel", &uses, denied, found));
    }
    needs.extend([
        Need::new(
            "nobody traces zfold",
            &[Use::Run],
            true,
            if traced { Err(Denied::Traced.to_string()) } else { Ok("") },
            &["run zfold without the debugger or strace"],
        ),
        need(
            "tracing children",
            &[Use::Run],
            refused(|denied| matches!(denied, Denied::Tracing(_) | Denied::Processes(_))),
            "ptrace",
        ),
        need(
            "descriptors of children",
            &[Use::Run],
            refused(|denied| matches!(denied, Denied::Descriptors(_))),
            "pidfd_getfd",
        ),
        need(
            "filters of system calls",
            &[Use::Run],
            refused(|denied| matches!(denied, Denied::Filters(_))),
            "seccomp",
        ),
    ]);
    needs.extend(wishes(access.is_ok()));
    needs
}

/// Returns something without which there is no run, found or denied.
fn need(name: &'static str, uses: &[Use], denied: Option<&Denied>, detail: &str) -> Need {
    // Without the remedy, which the list has.
    let why =
        |denied: &Denied| denied.to_string().split("; ").next().unwrap_or_default().to_owned();
    let found = denied.map_or(Ok(detail), |denied| Err(why(denied)));
    Need::new(name, uses, true, found, &denied.map(remedies).unwrap_or_default())
}

/// Returns what a run can do without, found or missing; `has_access` to the kernel's page faults.
fn wishes(has_access: bool) -> [Need; 3] {
    let forks = wish(
        "messages about forks",
        &[Use::Run],
        (has_access && may_follow_forks()).then_some("CAP_SYS_PTRACE"),
        "forks of large programs take longer without CAP_SYS_PTRACE",
        &["run zfold as root", "docker run --cap-add SYS_PTRACE"],
    );
    let filters = wish(
        "programs with filters",
        &[Use::Run],
        has_capability(SYS_ADMIN).then_some("CAP_SYS_ADMIN"),
        "programs with a filter of their own, such as browsers, are not managed",
        &["run zfold as root, outside of a container"],
    );
    let accesses = wish(
        "accesses of pages",
        &[Use::Run, Use::Region],
        may_see_accesses().then_some("Linux 7.3 or later"),
        "pages are chosen by their faults alone",
        &["Linux 7.3 has it"],
    );
    [forks, filters, accesses]
}

/// Returns something that is not required, found in this way or missing.
fn wish(
    name: &'static str,
    uses: &[Use],
    found: Option<&str>,
    without: &str,
    remedies: &[&str],
) -> Need {
    Need::new(name, uses, false, found.ok_or_else(|| without.to_owned()), remedies)
}
