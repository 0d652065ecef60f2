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
    /// Addresses that the kernel reads or writes in the call: the arguments, and where numbers go.
    pub on_the_way: [Option<usize>; 4],
}

/// Decodes `registers` of a thread inside such a call or before it; `tid` is the thread.
pub(crate) fn of(tid: i32, registers: &Registers) -> Areas {
    let args = registers.arguments();
    let clears = |flags: u64, at: u64| {
        let clears = flags & libc::CLONE_CHILD_CLEARTID as u64 != 0;
        clears.then_some(arch::untagged(at as usize))
    };
    match registers.number().map(|number| number as libc::c_long) {
        Some(libc::SYS_clone) => Areas {
            flags: args[0],
            tid_at: clears(args[0], args[CHILD_TID]),
            on_the_way: [Some(args[2] as usize), Some(args[CHILD_TID] as usize), None, None],
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
                flags: words[0],
                tid_at: clears(words[0], words[2]),
                on_the_way: [Some(args[0] as usize), at(1), at(2), at(3)],
            }
        }
        Some(arch::VFORK) => {
            Areas { flags: (libc::CLONE_VM | libc::CLONE_VFORK) as u64, ..Areas::default() }
        }
        _ => Areas::default(),
    }
}
