//! `run` keeps the anonymous memory of a program and its children under a limit.
//!
//! The manager, a process of its own, starts the program and traces it. It watches how much memory
//! the program has. When that nears the limit, it gives each large address space a helper, a
//! process that shares its memory and makes system calls there, and closes its memory: userfaultfd
//! then reports missing pages and changes. No code of zfold runs in the program's threads, and
//! before that point nothing slows them down. [`manage`] is all of that; [`GroupLimit`] chooses its
//! limit by what the container or the machine has left.
//!
//! ```no_run
//! # #[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))] {
//! use zfold_pool::PoolOptions;
//! use zfold_run::{GroupLimit, Inherited, RunOptions, Subject, access, manage, page_size};
//! use zfold_store::pressure::MemoryLeft;
//! use zfold_store::{CodecKind, StoreOptions};
//!
//! let pool = zfold_pool::create("run", &PoolOptions::default().with_page_size(page_size()))?;
//! let store = StoreOptions::new(1, CodecKind::Lz4.into());
//! let inherited = Inherited::of_this_process();
//! let program = Subject::Program { command: vec!["node".into()], inherited };
//! let options = RunOptions::new(program, GroupLimit::first(), pool, store);
//! let auto = |control| drop(GroupLimit::start(control, MemoryLeft::new(), true, true));
//! let report = manage(options, &access()?, auto, |event| println!("{event:?}"))?;
//! println!("{:?}", report.figures);
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | room | what is there |
//! | --- | --- |
//! | `link` | what the tracer and the memory side say to each other |
//! | `running` | processes that run already, as seen from outside |
//! | `trace` | the tracer: stops, helpers |
//! | `spaces` | address spaces, and what is charged for them |
//! | `cold` | where pages are that have left |
//! | `shared` | what all threads share; the order of locks |
//! | `faults` | a missing page comes |
//! | `reclaim` | a page leaves |
//! | `auto` | what a run may take, chosen by what is left |
//! | `seen` | how much of its memory a program touches |
//! | `limit` | how much there is, and what is closed when that comes near the limit |
//! | `engine` | the memory side as a whole: its threads |
//! | `figures` | what is counted, and where it is shown |
//! | `core` | what is decided about the pages of one address space, as plain data |
//! | `sys` | system calls about other processes |
//!
//! For other processors than x86-64 and aarch64 only the figures exist, so that programs there know
//! them. `sys/arch` has the differences between the two.

#![cfg(target_os = "linux")]

#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
mod auto;
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
mod cold;
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
mod control;
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
mod core;
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
mod engine;
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
mod faults;
pub mod figures;
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
mod limit;
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
pub(crate) mod link;
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
mod manage;
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
mod options;
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
mod permission;
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
mod reclaim;
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
mod running;
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
mod seen;
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
mod shared;
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
mod spaces;
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
mod sys;
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
mod trace;

pub use figures::{Figures, LIMIT_MIN, Touched};

#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
pub use self::{
    auto::GroupLimit,
    control::{Control, State},
    manage::manage,
    options::{
        Estimate, Event, Kind, Report, RunError, RunOptions, Staying, Subject, UNMANAGED_MAX,
        Unmanaged, page_size,
    },
    permission::{Access, Denied, access, may_follow_forks, may_see_accesses, may_trace},
    running::{Refused, Running},
    sys::inherited::{Files, Inherited, MemoryLimits, die_of, hold_signals, take_signal, tell},
    sys::malloc::keep_little_memory,
    sys::process::remedy,
    trace::HELPER_AT,
};
