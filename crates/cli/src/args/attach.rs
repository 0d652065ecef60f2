//! The arguments of `zfold attach`.

use std::ffi::OsString;

use clap::builder::RangedI64ValueParser;
use zfold_pool::Allocator;

use super::run::{Limit, RunArgs, StoreArgs};

pub(super) const EXAMPLES: &str = "\
Examples:
  A server that has grown, into 1 GiB, without a restart:
    zfold attach --limit 1GiB $(pidof redis-server)
  A notebook's kernel, without confirmation:
    zfold attach --yes --limit 2GiB 4711
  For a service, so that the manager does not end with a login:
    sudo systemd-run --scope zfold attach --yes --limit 1GiB $(pidof -s postgres)
  Look at it, and change its limit:
    zfold ps
    zfold ctl --pid 4712 set limit=2GiB

This needs the rights of zfold run (see zfold check), and the right to trace the processes: root
(CAP_SYS_PTRACE), or processes of the same user where kernel.yama.ptrace_scope is 0. Where that is
1, as on Ubuntu, or 2, root is needed; where it is 3, no process may trace. Capabilities of zfold's
file (setcap) do not count, since any user can execute it.

This cannot be undone: from now on a background process, the manager, holds part of their memory. It
ends with the last of them; if it is killed, the kernel kills them. No debugger can attach to them.
They keep a seccomp filter, and where they lack CAP_SYS_ADMIN, no_new_privs: setuid programs that
they start later run with the rights of the process that starts them. zfold cannot detach; with a
higher limit (zfold ctl) it loads their memory as they use it.

Refused, with nothing changed: a process that is already traced, by a debugger or by zfold; a
process of another user; one in a sandbox whose filter forbids attaching; an ancestor of zfold; a
32-bit program; a kernel thread. The same holds for each descendant that may not be traced.

Exit status: 0 done, 1 failed or refused, 2 wrong usage.";

const MEMORY: &str = "Memory";

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AttachArgs {
    /// Most anonymous memory that the processes and their descendants may have resident; 4MiB or
    /// more. Compressed pages come on top. auto: what is free below the limit of the cgroup in
    /// which zfold runs.
    #[arg(long, value_name = "SIZE|auto", help_heading = MEMORY)]
    pub(crate) limit: Limit,

    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// Do not ask for confirmation on a terminal.
    #[arg(long)]
    pub(crate) yes: bool,

    /// Wait until the last process has ended. Otherwise zfold returns when the limit is kept, or
    /// after five seconds. Interrupting it changes nothing for the processes.
    #[arg(long)]
    pub(crate) wait: bool,

    /// IDs of the processes, each with all its threads and descendants. They share the limit.
    #[arg(value_name = "PID", required = true, num_args = 1..)]
    #[arg(value_parser = RangedI64ValueParser::<i32>::new().range(1..))]
    pub(crate) processes: Vec<i32>,
}

impl AttachArgs {
    /// Returns the same settings as those of a run whose program has this name.
    pub(crate) fn as_run(&self, program: OsString) -> RunArgs {
        RunArgs {
            limit: Some(self.limit),
            store: self.store.clone(),
            allocator: Allocator::default(),
            best_effort: false,
            report: None,
            report_file: None,
            command: vec![program],
        }
    }
}
