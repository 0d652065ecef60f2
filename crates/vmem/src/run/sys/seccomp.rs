//! The filter that stops a thread at the few system calls of which the kernel sends no message, or
//! none that is in time; and the one that a helper is left with.
//!
//! Programs of the kernel's classic BPF. They look at the architecture and the number first and at
//! nothing else, so that the kernel knows for each other number, once and for all, that it is
//! allowed, and does not run the filter for it.

use super::registers::ARCH;
use crate::run::link::Growth;

/// `AUDIT_ARCH_I386`: calls of 32-bit programs.
const ARCH_32: u32 = 0x4000_0003;
/// Calls of the x32 interface have this bit in their number.
const X32: u32 = 0x4000_0000;

/// What the filter says with a stop: one of our calls.
pub(crate) const STOP_CHANGE: u32 = 0x7a01;
/// A call of 32-bit programs that changes the address space.
pub(crate) const STOP_FOREIGN: u32 = 0x7a02;

/// `MADV_WIPEONFORK`.
pub(crate) const WIPE_ON_FORK: libc::c_int = 18;
/// `MADV_GUARD_INSTALL`.
pub(crate) const GUARD_INSTALL: libc::c_int = 102;

/// Number of the ioctl by which a program watches a range of its memory by itself.
pub(crate) const WATCH: u32 = crate::sys::uffd::Uffd::REGISTER_CODE as u32;

/// One instruction.
pub(crate) type Instruction = libc::sock_filter;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const ANY_OF: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Offsets in what the filter sees (`struct seccomp_data`).
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const INSTRUCTION_LOW: u32 = 8;
const INSTRUCTION_HIGH: u32 = 12;

const fn argument(index: u32) -> u32 {
    16 + 8 * index
}

const fn step(code: u16, k: u32) -> Instruction {
    Instruction { code, jt: 0, jf: 0, k }
}

/// Jumps over `yes` instructions if the test holds, else over `no`.
const fn test(code: u16, k: u32, yes: u8, no: u8) -> Instruction {
    Instruction { code, jt: yes, jf: no, k }
}

const ALLOW: Instruction = step(RETURN, libc::SECCOMP_RET_ALLOW);

const fn stop(data: u32) -> Instruction {
    step(RETURN, libc::SECCOMP_RET_TRACE | data)
}

/// Allows a call from the page at `page`, stops any other.
fn stop_unless_from(page: usize) -> [Instruction; 7] {
    let low = page as u32;
    [
        step(LOAD, INSTRUCTION_HIGH),
        test(EQUAL, (page >> 32) as u32, 0, 4),
        step(LOAD, INSTRUCTION_LOW),
        test(AT_LEAST, low, 0, 2),
        test(AT_LEAST, low + 0x1000, 1, 0),
        ALLOW,
        stop(STOP_CHANGE),
    ]
}

/// Which calls of one number concern us: falls through for those, returns for others.
fn condition(number: libc::c_long, growth: Growth) -> Vec<Instruction> {
    let flags = |f: libc::c_int| f as u32;
    match number {
        // Large private anonymous memory of the plain kind.
        libc::SYS_mmap => {
            let writable = [step(LOAD, argument(2)), test(ANY_OF, flags(libc::PROT_WRITE), 0, 5)];
            let writable = if growth.all { &[][..] } else { &writable };
            let mut code = vec![
                step(LOAD, argument(1) + 4),
                test(EQUAL, 0, 0, 2),
                step(LOAD, argument(1)),
                test(AT_LEAST, growth.mapping_bytes, 0, 5 + writable.len() as u8),
            ];
            code.extend(writable);
            code.extend([
                step(LOAD, argument(3)),
                test(ANY_OF, flags(libc::MAP_HUGETLB), 3, 0),
                step(AND, flags(libc::MAP_TYPE | libc::MAP_ANONYMOUS)),
                test(EQUAL, flags(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS), 2, 0),
                ALLOW,
                ALLOW,
            ]);
            code
        }
        libc::SYS_madvise => {
            any_of(argument(2), &[libc::MADV_PAGEOUT, WIPE_ON_FORK, GUARD_INSTALL])
        }
        libc::SYS_process_madvise => any_of(argument(3), &[GUARD_INSTALL]),
        libc::SYS_ioctl => any_of(argument(1), &[WATCH.cast_signed()]),
        // Threads pass; the kernel tells of them without a stop of ours.
        libc::SYS_clone => vec![
            step(LOAD, argument(0)),
            test(ANY_OF, flags(libc::CLONE_UNTRACED), 2, 0),
            test(ANY_OF, flags(libc::CLONE_VM), 0, 1),
            ALLOW,
        ],
        libc::SYS_shmat => {
            vec![step(LOAD, argument(2)), test(ANY_OF, flags(libc::SHM_REMAP), 1, 0), ALLOW]
        }
        _ => Vec::new(),
    }
}

/// Falls through if an argument has one of these values.
fn any_of(argument: u32, values: &[libc::c_int]) -> Vec<Instruction> {
    let mut code = vec![step(LOAD, argument)];
    let left = values.len() as u8;
    for (index, &value) in (0_u8..).zip(values) {
        code.push(test(EQUAL, value.cast_unsigned(), left - index, 0));
    }
    code.push(ALLOW);
    code
}

/// Numbers at which the filter looks closer.
const WATCHED: [libc::c_long; 9] = [
    libc::SYS_mmap,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_fork,
    libc::SYS_process_madvise,
    libc::SYS_shmat,
    libc::SYS_ioctl,
];

/// fork, clone, mremap, madvise, clone3, process_madvise in the 32-bit numbering.
const WATCHED_32: [u32; 6] = [2, 120, 163, 219, 435, 440];

/// The filter; calls from the page at `helper` are allowed.
pub(crate) fn program(helper: usize, growth: Growth) -> Vec<Instruction> {
    let mut foreign = vec![step(LOAD, NUMBER)];
    let len = WATCHED_32.len() as u8;
    for (index, number) in (0_u8..).zip(WATCHED_32) {
        foreign.push(test(EQUAL, number, len - index, 0));
    }
    foreign.extend([ALLOW, stop(STOP_FOREIGN)]);

    let mut code = vec![step(LOAD, ARCHITECTURE), test(EQUAL, ARCH, foreign.len() as u8 + 2, 0)];
    code.push(test(EQUAL, ARCH_32, 1, 0));
    code.push(step(RETURN, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32));
    code.extend(foreign);
    code.extend([
        step(LOAD, NUMBER),
        test(AT_LEAST, X32, 0, 1),
        step(RETURN, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
    ]);
    for number in WATCHED.into_iter().chain(growth.all.then_some(libc::SYS_brk)) {
        let mut body = condition(number, growth);
        body.extend(stop_unless_from(helper));
        code.push(test(EQUAL, number as u32, 0, body.len() as u8));
        code.extend(body);
    }
    code.push(ALLOW);
    code
}

/// Calls that a helper makes.
const HELPERS: [libc::c_long; 5] =
    [libc::SYS_read, libc::SYS_write, libc::SYS_ioctl, libc::SYS_madvise, libc::SYS_exit_group];

/// The filter of a helper: any other call ends it.
pub(crate) fn helpers_own() -> Vec<Instruction> {
    let end = step(RETURN, libc::SECCOMP_RET_KILL_PROCESS);
    let mut code = vec![step(LOAD, ARCHITECTURE), test(EQUAL, ARCH, 1, 0), end, step(LOAD, NUMBER)];
    let len = HELPERS.len() as u8;
    for (index, number) in (0_u8..).zip(HELPERS) {
        code.push(test(EQUAL, number as u32, len - index, 0));
    }
    code.extend([end, ALLOW]);
    code
}
