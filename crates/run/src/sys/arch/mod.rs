//! The differences between architectures; a further architecture is one more file with the same
//! names.
//!
//! | name | what it is |
//! | --- | --- |
//! | `Registers`, `read_registers`, `write_registers` | the registers of a stopped thread |
//! | `ARCH`, `FOREIGN`, `OTHER_NUMBERS` | how filters know calls by the numbers of others |
//! | `SYSCALL`, `SYSCALL_ALIGN` | the instruction of a system call |
//! | `LOOP`, `GADGET` | the code of a helper |
//! | `FORK`, `VFORK`, `EPOLL_WAIT` | calls that newer architectures do not have |
//! | `CHILD_TID` | the order of clone's arguments |
//! | `REWINDS` | whether a stop hides the call that it interrupts |
//! | `untagged` | an address as page tables know it |

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod common;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::*;
pub(crate) use common::Seen;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::*;
