//! The filter that stops a thread at the few system calls that the kernel does not report, or not
//! in time; and the filter of a helper.
//!
//! Programs of the kernel's classic BPF. They check only the architecture and the number first, so
//! that the kernel can cache that every other number is allowed, and does not run the filter for
//! it.

use super::arch::{self, ARCH};
use crate::link::{Call, Growth};
use zfold_uffd::DONTNEED_LOCKED;
use zfold_uffd::Uffd;

/// The filter's data at a stop: one of the watched calls.
pub(crate) const STOP_CHANGE: u32 = 0x7a01;
/// A call of 32-bit programs that changes the address space.
pub(crate) const STOP_FOREIGN: u32 = 0x7a02;

/// A call that the strict mode does not allow.
pub(crate) const STOP_STRICT: u32 = 0x7a03;

/// `MADV_WIPEONFORK`.
pub(crate) const WIPE_ON_FORK: libc::c_int = 18;
/// `MADV_POPULATE_WRITE`: makes pages writable, and so the space's own if a fork shares them.
pub(crate) const POPULATE_WRITE: libc::c_int = 23;
/// `MADV_GUARD_INSTALL`.
pub(crate) const GUARD_INSTALL: libc::c_int = 102;

/// Number of the ioctl by which a program registers a range of its memory with its own userfaultfd.
pub(crate) const WATCH: u32 = Uffd::REGISTER_CODE as u32;

/// Number of the ioctl by which it moves pages to there.
pub(crate) const MOVE: u32 = Uffd::MOVE_CODE as u32;

/// One instruction.
pub(crate) type Instruction = libc::sock_filter;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const ANY_OF: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Offsets in the filter's input (`struct seccomp_data`).
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;

const fn argument(index: u32) -> u32 {
    16 + 8 * index
}

const fn step(code: u16, k: u32) -> Instruction {
    Instruction { code, jt: 0, jf: 0, k }
}

/// Skips `yes` instructions if the test holds, otherwise `no`.
const fn test(code: u16, k: u32, yes: u8, no: u8) -> Instruction {
    Instruction { code, jt: yes, jf: no, k }
}

const ALLOW: Instruction = step(RETURN, libc::SECCOMP_RET_ALLOW);

const fn stop(data: u32) -> Instruction {
    step(RETURN, libc::SECCOMP_RET_TRACE | data)
}

/// Selects the watched calls of one number: falls through for those, returns for others.
fn condition(number: libc::c_long, growth: Growth) -> Vec<Instruction> {
    let flags = |f: libc::c_int| f as u32;
    match number {
        // Large private anonymous memory of the plain kind.
        libc::SYS_mmap => {
            // Those that pass as large skip the look at what may be done with them.
            let skipped = if growth.all { 2 } else { 0 };
            vec![
                step(LOAD, argument(1) + 4),
                test(EQUAL, 0, 0, 3 + skipped),
                step(LOAD, argument(1)),
                test(AT_LEAST, growth.mapping_bytes, 1 + skipped, 0),
                test(AT_LEAST, growth.writable_bytes, 0, 6),
                step(LOAD, argument(2)),
                test(ANY_OF, flags(libc::PROT_WRITE), 0, 4),
                step(LOAD, argument(3)),
                test(ANY_OF, flags(libc::MAP_HUGETLB), 2, 0),
                step(AND, flags(libc::MAP_TYPE | libc::MAP_ANONYMOUS)),
                test(EQUAL, flags(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS), 1, 0),
                ALLOW,
            ]
        }
        // A large range that cannot be written to afterwards.
        libc::SYS_mprotect => vec![
            step(LOAD, argument(2)),
            test(ANY_OF, flags(libc::PROT_WRITE), 4, 0),
            step(LOAD, argument(1) + 4),
            test(EQUAL, 0, 0, 3),
            step(LOAD, argument(1)),
            test(AT_LEAST, growth.mapping_bytes, 1, 0),
            ALLOW,
        ],
        libc::SYS_madvise => any_of(argument(2), [libc::MADV_PAGEOUT, WIPE_ON_FORK, GUARD_INSTALL]),
        libc::SYS_process_madvise => any_of(argument(3), [GUARD_INSTALL]),
        libc::SYS_ioctl => {
            let mut code = one_of(argument(1), [WATCH, MOVE], ALLOW);
            code.extend([step(LOAD, argument(0) + 4), test(EQUAL, Call::MARK, 0, 1), ALLOW]);
            code
        }
        // Threads pass; the kernel reports them without this stop.
        libc::SYS_clone => vec![
            step(LOAD, argument(0)),
            test(ANY_OF, flags(libc::CLONE_UNTRACED), 2, 0),
            test(ANY_OF, flags(libc::CLONE_VM), 0, 1),
            ALLOW,
        ],
        // Calls that only a process with one thread may make.
        libc::SYS_unshare => {
            vec![step(LOAD, argument(0)), test(ANY_OF, flags(libc::CLONE_NEWUSER), 1, 0), ALLOW]
        }
        // Waits for children of any kind, which include a helper.
        libc::SYS_wait4 => children_of_any_kind(2),
        libc::SYS_waitid => children_of_any_kind(3),
        libc::SYS_prctl => any_of(argument(0), [libc::PR_GET_SECCOMP, libc::PR_SET_SECCOMP]),
        libc::SYS_seccomp => one_of(argument(0), [libc::SECCOMP_SET_MODE_STRICT], ALLOW),
        libc::SYS_shmat => {
            vec![step(LOAD, argument(2)), test(ANY_OF, flags(libc::SHM_REMAP), 1, 0), ALLOW]
        }
        _ => Vec::new(),
    }
}

/// Falls through if the options of a wait, in this argument, are for children without a signal.
fn children_of_any_kind(index: u32) -> Vec<Instruction> {
    let kinds = (libc::__WALL | libc::__WCLONE).cast_unsigned();
    vec![step(LOAD, argument(index)), test(ANY_OF, kinds, 1, 0), ALLOW]
}

/// Falls through if what is loaded has one of these values.
fn one_of<const N: usize>(from: u32, values: [u32; N], otherwise: Instruction) -> Vec<Instruction> {
    let mut code = vec![step(LOAD, from)];
    let tests = values.into_iter().zip((1..=N as u8).rev());
    code.extend(tests.map(|(value, left)| test(EQUAL, value, left, 0)));
    code.push(otherwise);
    code
}

/// Falls through if an argument has one of these values.
fn any_of<const N: usize>(argument: u32, values: [libc::c_int; N]) -> Vec<Instruction> {
    one_of(argument, values.map(libc::c_int::cast_unsigned), ALLOW)
}

/// Numbers that the filter checks further.
const WATCHED: [libc::c_long; 17] = [
    libc::SYS_mprotect,
    libc::SYS_mmap,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_process_madvise,
    libc::SYS_shmat,
    libc::SYS_ioctl,
    libc::SYS_exit_group,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_setns,
    libc::SYS_process_mrelease,
    libc::SYS_prctl,
    libc::SYS_seccomp,
    libc::SYS_unshare,
];

/// The filter of programs. It makes no exception for where a call is made: calls that the tracer
/// injects stop like any other, and the tracer lets them continue.
pub(crate) fn program(growth: Growth) -> Vec<Instruction> {
    let mut foreign = one_of(NUMBER, arch::FOREIGN.watched, ALLOW);
    foreign.push(stop(STOP_FOREIGN));

    let mut code = vec![step(LOAD, ARCHITECTURE), test(EQUAL, ARCH, foreign.len() as u8 + 2, 0)];
    code.push(test(EQUAL, arch::FOREIGN.arch, 1, 0));
    code.push(step(RETURN, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32));
    code.extend(foreign);
    code.push(step(LOAD, NUMBER));
    if let Some(bit) = arch::OTHER_NUMBERS {
        code.push(test(AT_LEAST, bit, 0, 1));
        code.push(step(RETURN, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32));
    }
    // Not every architecture has it.
    let fork = Some(arch::FORK).filter(|&number| number >= 0);
    let growing = growth.all.then_some(libc::SYS_brk);
    for number in WATCHED.into_iter().chain(fork).chain(growing) {
        let mut body = condition(number, growth);
        body.push(stop(STOP_CHANGE));
        code.push(test(EQUAL, number as u32, 0, body.len() as u8));
        code.extend(body);
    }
    code.push(ALLOW);
    code
}

/// The filter that is the strict mode: it allows four calls, and all others stop the thread.
pub(crate) fn strict() -> Vec<Instruction> {
    let allowed = [libc::SYS_read, libc::SYS_write, libc::SYS_exit, libc::SYS_rt_sigreturn];
    let refused = stop(STOP_STRICT);
    let mut code = vec![step(LOAD, ARCHITECTURE), test(EQUAL, ARCH, 1, 0), refused];
    code.extend(one_of(NUMBER, allowed.map(|number| number as u32), refused));
    code.push(ALLOW);
    code
}

/// The ioctls that a helper may make on its userfaultfd.
const HELPERS_CONTROLS: [u64; 3] = [Uffd::MOVE_CODE, Uffd::REGISTER_CODE, Uffd::UNREGISTER_CODE];
/// What it may advise.
const HELPERS_ADVICE: [libc::c_int; 3] = [libc::MADV_DONTNEED, DONTNEED_LOCKED, POPULATE_WRITE];
/// The key with which `pkey_mprotect`, which the filter of programs lets pass, is `mprotect`.
pub(crate) const NO_KEY: libc::c_int = -1;
/// Its descriptors: the socket, and the one for missing pages.
const HELPERS_SOCKET: u32 = 0;
const HELPERS_UFFD: u32 = Call::NUMBER;

/// The filter of a helper: any call ends it except those that it makes, on its own two descriptors.
pub(crate) fn helpers_own() -> Vec<Instruction> {
    const END: Instruction = step(RETURN, libc::SECCOMP_RET_KILL_PROCESS);
    let socket = || one_of(argument(0), [HELPERS_SOCKET], END);
    let controls = one_of(argument(1), HELPERS_CONTROLS.map(|code| code as u32), END);
    let advice = HELPERS_ADVICE.map(libc::c_int::cast_unsigned);
    let calls = [
        (libc::SYS_read, socket()),
        (libc::SYS_write, socket()),
        (libc::SYS_ioctl, [one_of(argument(0), [HELPERS_UFFD], END), controls].concat()),
        (libc::SYS_madvise, one_of(argument(2), advice, END)),
        (libc::SYS_pkey_mprotect, one_of(argument(3), [NO_KEY.cast_unsigned()], END)),
        (libc::SYS_exit_group, Vec::new()),
    ];
    let mut code = vec![step(LOAD, ARCHITECTURE), test(EQUAL, ARCH, 1, 0), END, step(LOAD, NUMBER)];
    for (number, mut body) in calls {
        body.push(ALLOW);
        code.push(test(EQUAL, number as u32, 0, body.len() as u8));
        code.extend(body);
    }
    code.push(END);
    code
}

/// The calls of a helper in its loop, as a filter sees them.
pub(crate) fn helpers_calls() -> Vec<[u8; SEEN]> {
    let uffd = Call::UFFD;
    let socket = u64::from(HELPERS_SOCKET);
    let mut calls = vec![(libc::SYS_read, [socket, 0, 0]), (libc::SYS_write, [socket, 0, 0])];
    calls.extend(HELPERS_CONTROLS.map(|code| (libc::SYS_ioctl, [uffd, code, 0])));
    calls.extend(HELPERS_ADVICE.map(|advice| (libc::SYS_madvise, [0, 0, advice as u64])));
    calls.into_iter().map(|(number, args)| seen(number, args)).collect()
}

/// Bytes that a filter sees of a call: number, architecture, instruction, six arguments.
pub(crate) const SEEN: usize = 64;

fn seen<const ARGS: usize>(number: libc::c_long, args: [u64; ARGS]) -> [u8; SEEN] {
    let mut bytes = [0; SEEN];
    bytes[..4].copy_from_slice(&(number as u32).to_ne_bytes());
    bytes[4..8].copy_from_slice(&ARCH.to_ne_bytes());
    for (index, value) in args.into_iter().enumerate() {
        bytes[16 + 8 * index..][..8].copy_from_slice(&value.to_ne_bytes());
    }
    bytes
}

/// Returns whether a filter lets a call pass, by executing it as the kernel does.
pub(crate) fn allows(filter: &[Instruction], seen: &[u8; SEEN]) -> bool {
    let action = execute(filter, seen).unwrap_or(libc::SECCOMP_RET_KILL_PROCESS);
    matches!(
        action & libc::SECCOMP_RET_ACTION_FULL,
        libc::SECCOMP_RET_ALLOW | libc::SECCOMP_RET_LOG
    )
}

/// Executes a filter; `None` if the kernel would not have accepted it.
fn execute(filter: &[Instruction], seen: &[u8; SEEN]) -> Option<u32> {
    const WORDS: usize = 16;
    let (mut a, mut x, mut memory) = (0_u32, 0_u32, [0_u32; WORDS]);
    let load = |at: u32| {
        let at = at as usize;
        Some(u32::from_ne_bytes(seen.get(at..at + 4)?.try_into().expect("four bytes")))
    };
    let mut at = 0;
    // Jumps go forward only, so that it ends.
    loop {
        let step = filter.get(at)?;
        let code = u32::from(step.code);
        at += 1;
        let from_x = code & libc::BPF_X != 0;
        match code & 0x07 {
            libc::BPF_LD | libc::BPF_LDX => {
                let value = match code & 0xe0 {
                    libc::BPF_ABS => load(step.k)?,
                    libc::BPF_IMM => step.k,
                    libc::BPF_MEM => *memory.get(step.k as usize)?,
                    libc::BPF_LEN => SEEN as u32,
                    _ => return None,
                };
                if code & 0x07 == libc::BPF_LD { a = value } else { x = value }
            }
            libc::BPF_ST => *memory.get_mut(step.k as usize)? = a,
            libc::BPF_STX => *memory.get_mut(step.k as usize)? = x,
            libc::BPF_ALU => {
                let by = if from_x { x } else { step.k };
                a = match code & 0xf0 {
                    libc::BPF_ADD => a.wrapping_add(by),
                    libc::BPF_SUB => a.wrapping_sub(by),
                    libc::BPF_MUL => a.wrapping_mul(by),
                    libc::BPF_DIV => a.checked_div(by).unwrap_or(0),
                    libc::BPF_OR => a | by,
                    libc::BPF_AND => a & by,
                    libc::BPF_XOR => a ^ by,
                    libc::BPF_LSH => a.checked_shl(by).unwrap_or(0),
                    libc::BPF_RSH => a.checked_shr(by).unwrap_or(0),
                    libc::BPF_NEG => a.wrapping_neg(),
                    _ => return None,
                };
            }
            libc::BPF_JMP if code & 0xf0 == libc::BPF_JA => at += step.k as usize,
            libc::BPF_JMP => {
                let by = if from_x { x } else { step.k };
                let holds = match code & 0xf0 {
                    libc::BPF_JEQ => a == by,
                    libc::BPF_JGT => a > by,
                    libc::BPF_JGE => a >= by,
                    libc::BPF_JSET => a & by != 0,
                    _ => return None,
                };
                at += usize::from(if holds { step.jt } else { step.jf });
            }
            libc::BPF_RET => return Some(if code & 0x18 == libc::BPF_A { a } else { step.k }),
            // BPF_MISC.
            _ if code & 0xf8 == libc::BPF_TAX => x = a,
            _ => a = x,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growth() -> Growth {
        Growth { writable_bytes: 1 << 14, mapping_bytes: 1 << 20, all: true }
    }

    fn action<const ARGS: usize>(
        filter: &[Instruction],
        number: libc::c_long,
        args: [u64; ARGS],
    ) -> u32 {
        execute(filter, &seen(number, args)).expect("a filter that ends")
    }

    #[test]
    fn a_helper_may_make_its_own_calls_and_no_other() {
        let own = helpers_own();
        for call in helpers_calls() {
            assert!(allows(&own, &call), "{call:?}");
            assert!(allows(&program(growth()), &call), "by the program's filter: {call:?}");
        }
        let uffd = u64::from(HELPERS_UFFD);
        for (number, args) in [
            (libc::SYS_write, [2, 0, 0]),
            (libc::SYS_read, [1, 0, 0]),
            (libc::SYS_ioctl, [0, Uffd::MOVE_CODE, 0]),
            // FIOASYNC
            (libc::SYS_ioctl, [uffd, 0x5452, 0]),
            (libc::SYS_madvise, [0, 0, libc::MADV_FREE as u64]),
            (libc::SYS_mmap, [0; 3]),
            (libc::SYS_clone, [libc::CLONE_VM as u64, 0, 0]),
            (libc::SYS_mprotect, [0, 4096, 7]),
            // With a key.
            (libc::SYS_pkey_mprotect, [0, 4096, 7]),
        ] {
            assert_eq!(action(&own, number, args), libc::SECCOMP_RET_KILL_PROCESS, "{number}");
        }
    }

    #[test]
    fn what_the_kernel_does_not_tell_is_stopped_wherever_it_is_called() {
        let filter = program(growth());
        let stops = libc::SECCOMP_RET_TRACE | STOP_CHANGE;
        for (number, args) in [
            (libc::SYS_mremap, [0; 3]),
            (arch::FORK.max(libc::SYS_clone), [0; 3]),
            (libc::SYS_clone3, [0; 3]),
            (libc::SYS_clone, [(libc::CLONE_VM | libc::CLONE_UNTRACED) as u64, 0, 0]),
            (libc::SYS_madvise, [0, 0, libc::MADV_PAGEOUT as u64]),
            (libc::SYS_ioctl, [5, u64::from(WATCH), 0]),
            (libc::SYS_ioctl, [5, u64::from(MOVE), 0]),
            (libc::SYS_mprotect, [0, 1 << 20, libc::PROT_NONE as u64]),
            (libc::SYS_mprotect, [0, 1 << 32, libc::PROT_READ as u64]),
            (libc::SYS_exit_group, [0; 3]),
            (libc::SYS_wait4, [0, 0, libc::__WALL as u64]),
            (libc::SYS_prctl, [libc::PR_GET_SECCOMP as u64, 0, 0]),
            (libc::SYS_seccomp, [0; 3]),
            (libc::SYS_unshare, [libc::CLONE_NEWUSER as u64, 0, 0]),
        ] {
            assert_eq!(action(&filter, number, args), stops, "{number}");
        }
        for (number, args) in [
            (libc::SYS_clone, [libc::CLONE_VM as u64, 0, 0]),
            (libc::SYS_ioctl, [5, 0x5401, 0]),
            (libc::SYS_read, [5, 0, 0]),
            (libc::SYS_madvise, [0, 0, libc::MADV_RANDOM as u64]),
            (libc::SYS_madvise, [0, 0, libc::MADV_SEQUENTIAL as u64]),
            (libc::SYS_mprotect, [0, 4096, libc::PROT_NONE as u64]),
            (libc::SYS_mprotect, [0, 1 << 32, libc::PROT_WRITE as u64]),
            (libc::SYS_wait4, [0, 0, libc::WNOHANG as u64]),
            (libc::SYS_prctl, [libc::PR_SET_NAME as u64, 0, 0]),
            (libc::SYS_seccomp, [u64::from(libc::SECCOMP_SET_MODE_FILTER), 0, 0]),
        ] {
            assert_eq!(action(&filter, number, args), libc::SECCOMP_RET_ALLOW, "{number}");
        }
    }

    #[test]
    fn private_memory_that_is_writable_or_large_is_stopped_when_it_is_mapped() {
        let few = Growth { all: false, ..growth() };
        let (write, read) = (libc::PROT_WRITE as u64, libc::PROT_READ as u64);
        let private = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
        let (shared, file) = (libc::MAP_SHARED | libc::MAP_ANONYMOUS, libc::MAP_PRIVATE);
        let huge = private | libc::MAP_HUGETLB as u64;
        for (len, access, flags, stops) in [
            (1 << 14, write, private, [true, true]),
            (1 << 33, write, private, [true, true]),
            ((1 << 14) - 1, write, private, [false, false]),
            (1 << 14, read, private, [false, false]),
            (1 << 20, read, private, [true, false]),
            (1 << 33, read, private, [true, false]),
            (1 << 33, write, shared as u64, [false, false]),
            (1 << 20, write, file as u64, [false, false]),
            (1 << 20, write, huge, [false, false]),
        ] {
            let stopped = [growth(), few].map(|growth| {
                let action = action(&program(growth), libc::SYS_mmap, [0, len, access, flags]);
                action != libc::SECCOMP_RET_ALLOW
            });
            assert_eq!(stopped, stops, "{len:#x} {access} {flags:#x}");
        }
    }

    #[test]
    fn the_strict_mode_allows_four_calls() {
        let filter = strict();
        for number in [libc::SYS_read, libc::SYS_write, libc::SYS_exit, libc::SYS_rt_sigreturn] {
            assert_eq!(action(&filter, number, [0; 3]), libc::SECCOMP_RET_ALLOW, "{number}");
        }
        for number in [libc::SYS_exit_group, libc::SYS_prctl, libc::SYS_mmap, libc::SYS_openat] {
            let stopped = libc::SECCOMP_RET_TRACE | STOP_STRICT;
            assert_eq!(action(&filter, number, [0; 3]), stopped, "{number}");
        }
    }
}
