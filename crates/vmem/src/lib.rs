//! Memory of which only a part is resident and the rest lies compressed, for programs whose data is
//! larger than memory.
//!
//! ```
//! use zfold_vmem::region::{MemoryOptions, Region};
//!
//! // 16 MiB of numbers, of which 1 MiB is resident.
//! let mut region = Region::new(16 << 20, &MemoryOptions::new(1 << 20))?;
//! let numbers = region.as_mut_slice::<f64>();
//! numbers.iter_mut().zip(0..).for_each(|(number, n)| *number = f64::from(n));
//! assert_eq!(numbers[1_000_000], 1_000_000.0);
//! assert!(region.stats().stored_pages > 3000);
//! # Ok::<(), zfold_vmem::region::RegionError>(())
//! ```
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
