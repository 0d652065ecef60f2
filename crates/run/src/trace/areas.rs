//! Where the kernel writes to the memory of a new thread, by the arguments of the call that made
//! it.

use crate::sys::arch::{self, CHILD_TID, Registers};
use crate::sys::ptrace;

/// What a call that makes a thread or process says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Areas {
    /// Its flags.
    pub flags: u64,
    /// Where its number is cleared, and waiting threads are woken, when it ends.
    pub tid_at: Option<usize>,
    /// Where it finds its number, which the kernel writes before the thread's first stop.
    pub number_at: Option<usize>,
    /// Addresses that the kernel reads or writes in the call: the arguments, and where numbers go.
    pub on_the_way: [Option<usize>; 4],
}

/// Decodes `registers` of a thread inside such a call or before it; `tid` is the thread.
pub(crate) fn of(tid: i32, registers: &Registers) -> Areas {
    let args = registers.arguments();
    let given = |flags: u64, flag: libc::c_int, at: u64| {
        (flags & flag as u64 != 0).then_some(arch::untagged(at as usize))
    };
    let number = |flags: u64, at: u64| Areas {
        flags,
        tid_at: given(flags, libc::CLONE_CHILD_CLEARTID, at),
        number_at: given(flags, libc::CLONE_CHILD_SETTID, at),
        ..Areas::default()
    };
    match registers.number().map(|number| number as libc::c_long) {
        Some(libc::SYS_clone) => Areas {
            on_the_way: [Some(args[2] as usize), Some(args[CHILD_TID] as usize), None, None],
            ..number(args[0], args[CHILD_TID])
        },
        Some(libc::SYS_clone3) => {
            // u64 each: flags, descriptor, child's number, parent's number.
            let mut words = [0_u64; 4];
            let mut bytes = [0; 32];
            if ptrace::read(tid, args[0] as usize, &mut bytes).is_ok() {
                for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
                    *word = u64::from_ne_bytes(*bytes);
                }
            }
            let at = |index: usize| Some(words[index] as usize);
            Areas {
                on_the_way: [Some(args[0] as usize), at(1), at(2), at(3)],
                ..number(words[0], words[2])
            }
        }
        Some(arch::VFORK) => {
            Areas { flags: (libc::CLONE_VM | libc::CLONE_VFORK) as u64, ..Areas::default() }
        }
        _ => Areas::default(),
    }
}
