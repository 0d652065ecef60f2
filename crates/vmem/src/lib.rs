//! Process memory over a page store: at most so many bytes of it are resident, the rest lies
//! compressed.
//!
//! - [`region`]: memory for programs that ask for it.
//! - `run`: whole programs that do not know; on x86-64.
//!
//! Both let the kernel tell them of missing pages (userfaultfd), take pages away with
//! `UFFDIO_MOVE`, which is atomic and refuses pages that a device writes to, and give them back
//! with `UFFDIO_COPY`. The design is in `docs/run.md`.

#![cfg(target_os = "linux")]

mod page;
pub mod region;
#[cfg(target_arch = "x86_64")]
pub mod run;
mod sync;
mod sys;

pub use sys::advice::{discard, page_out};
