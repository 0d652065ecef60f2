//! The arguments: every flag with its help, unit, default and range. No side effects.

mod attach;
mod check;
mod compare;
mod ctl;
mod demo;
mod disk;
mod guest;
mod ps;
mod run;
mod stat;
mod top;
mod values;

use std::ffi::OsString;

use clap::{Parser, Subcommand};
use clap_complete::Shell;

pub(crate) use attach::AttachArgs;
pub(crate) use check::CheckArgs;
pub(crate) use compare::CompareArgs;
pub(crate) use ctl::{CtlArgs, CtlCommand, Target};
pub(crate) use demo::DemoArgs;
pub(crate) use disk::DiskArgs;
pub(crate) use guest::{GuestArgs, GuestCommand, GuestServeArgs, GuestTarget, Loss};
pub(crate) use ps::PsArgs;
pub(crate) use run::{Limit, ReportFormat, RunArgs};
pub(crate) use stat::StatArgs;
pub(crate) use top::TopArgs;
pub(crate) use values::Format;

/// Compressed memory in user space: for programs, as disks, and to compare its pools.
#[derive(Debug, Parser)]
#[command(name = "zfold", version)]
#[command(subcommand_required = true, arg_required_else_help = false, max_term_width = 100)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a program under a memory limit, and keep the rest of its memory compressed.
    ///
    /// At most --limit of the anonymous memory of the program and its descendants is resident. A
    /// manager process compresses the other pages and loads them when they are touched. The
    /// program does not notice, whatever its language or libc; static programs work, too.
    #[command(after_help = run::EXAMPLES)]
    Run(Box<RunArgs>),
    /// Put running processes under a memory limit, without a restart.
    ///
    /// At most --limit of the anonymous memory of the processes and their descendants is
    /// resident; a manager in the background keeps the rest compressed, as zfold run does. The
    /// processes do not notice, but end if their manager is killed.
    #[command(after_help = attach::EXAMPLES)]
    Attach(Box<AttachArgs>),
    /// Check what works on this system, and name the command or flag that grants the rest.
    ///
    /// Looks for every right and kernel feature that runs, regions and disks use.
    #[command(after_help = check::EXAMPLES)]
    Check(CheckArgs),
    /// Show what zfold does: a program alone, then in a quarter of its memory.
    ///
    /// The program is zfold itself: it fills memory with pages of real programs, reads and updates
    /// parts, and reads all of it again. The second time it runs under zfold run, or, where that is
    /// not permitted, with its data in a Region of the library. It needs no rights, and takes
    /// seconds.
    #[command(after_help = demo::EXAMPLES)]
    Demo(DemoArgs),
    /// Serve a block device in compressed memory: over NBD, as a file, to virtual machines.
    ///
    /// Data that clients write is kept compressed in the memory of this process, until a discard
    /// frees it. It is lost with the process unless --save and --load preserve it.
    #[command(after_help = disk::EXAMPLES)]
    Disk(Box<DiskArgs>),
    /// Restore virtual machines: many guests over one compressed copy of their memory.
    ///
    /// Memory files of snapshots become images in a server's store: equal pages are kept once,
    /// zeros cost nothing. Firecracker connects to the socket of an image and gets pages as its
    /// guest touches them.
    #[command(after_help = guest::EXAMPLES)]
    Guest(GuestArgs),
    /// List this user's runs, disks and guest servers: limit, resident and compressed memory,
    /// faults per second.
    #[command(after_help = ps::EXAMPLES)]
    Ps(PsArgs),
    /// Watch this user's runs, disks and guest servers: memory, ratio, faults per second.
    #[command(after_help = top::EXAMPLES)]
    Top(TopArgs),
    /// Show the statistics of a running zfold disk (in the terms of zram and zswap) or of a run.
    #[command(after_help = stat::EXAMPLES)]
    Stat(StatArgs),
    /// Change settings of a running zfold disk or run; make a disk write back, compact, recompress
    /// or save, and a run page out.
    #[command(after_help = ctl::EXAMPLES)]
    Ctl(CtlArgs),
    /// Compare zbud, z3fold and zsmalloc on real pages: how much memory, how fast.
    ///
    /// Every page is stored in a random order and loaded again, a random half is freed, the pool is
    /// compacted, the half is stored again, every page is loaded again and freed. Every byte is
    /// compared. The tables show the memory and the time that each allocator and codec took, and
    /// the last line says what the best choice would save.
    ///
    /// Several inputs are also stored in one pool together, as the input "all"; the times in the
    /// table and the last line are those of "all"; json and csv have those of every input.
    ///
    /// Without an input, compares five built-in captures of real programs: cc1, node, numpy,
    /// postgres and rustc.
    #[command(after_help = compare::EXAMPLES)]
    Compare(Box<CompareArgs>),
    /// Compare lock designs under load: repeat published experiments on this machine.
    ///
    /// Each experiment repeats the measurements of one published document, as far as possible in
    /// user space, and prints the published figures beside its own. Variants alternate in every
    /// repeat, and every byte is compared.
    ///
    /// This starts the program zfold-lab with the arguments that follow. zfold looks for it beside
    /// itself and then in PATH; `cargo build --release -p zfold-lab` builds it.
    #[command(disable_help_flag = true)]
    Lab {
        /// The experiment and its options: zfold lab --help lists them.
        #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Print a shell completion script. After an update of zfold, print it again.
    #[command(after_help = COMPLETIONS)]
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Write the manual pages of all commands into a folder, for packages.
    #[cfg(feature = "man")]
    #[command(hide = true)]
    Man {
        /// The folder; it must exist.
        folder: std::path::PathBuf,
    },
}

const COMPLETIONS: &str = "\
Examples:
  zfold completions bash >> ~/.bash_completion
  zfold completions zsh > \"${fpath[1]}/_zfold\"
  zfold completions fish > ~/.config/fish/completions/zfold.fish";
