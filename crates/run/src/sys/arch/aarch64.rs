//! aarch64. The kernel goes back to the instruction of an interrupted call before it stops the
//! thread, forgets the number, and hides what it will do when the thread continues: of the call,
//! only its instruction and all registers except the first argument, if it returned, are known then
//! (`REWINDS`; trace/restart compensates for that). At the entry and the exit of a call the kernel
//! shows another value in `x7`, and ignores writes to it.
//!
//! No kernel sources were used: this was observed with stopped programs.

use std::io;

use super::common::{Foreign, NO_CALL, Seen};

/// `AUDIT_ARCH_*` of the calls that are known here.
pub(crate) const ARCH: u32 = 0xC000_00B7;

/// Programs of 32 bits: the EABI of ARM.
pub(crate) const FOREIGN: Foreign =
    Foreign { arch: 0x4000_0028, watched: [2, 120, 163, 220, 435, 440] };

/// A bit in the number of calls of another interface: there is none.
pub(crate) const OTHER_NUMBERS: Option<u32> = None;

/// The instruction that makes a system call: `svc #0`.
pub(crate) const SYSCALL: [u8; 4] = [0x01, 0x00, 0x00, 0xd4];

/// Where it may begin.
pub(crate) const SYSCALL_ALIGN: usize = 4;

pub(crate) const FORK: libc::c_long = NO_CALL;
pub(crate) const VFORK: libc::c_long = NO_CALL;
pub(crate) const EPOLL_WAIT: libc::c_long = NO_CALL;

/// Which argument of clone says where the number of a child is cleared.
pub(crate) const CHILD_TID: usize = 4;

/// Whether the kernel goes back to the instruction of an interrupted call before it stops the
/// thread, and shows neither its number nor its result.
pub(crate) const REWINDS: bool = true;

/// The helper's loop; `x19` holds the address of the calls, which the results follow. It needs no
/// stack, and branches by no register.
pub(crate) const LOOP: [u8; 128] = bytes([
    // next: read(0, calls, 256 calls)
    0xd280_07e8, // mov x8, 63
    0xd280_0000, // mov x0, 0
    0xaa13_03e1, // mov x1, x19
    0xd287_0002, // mov x2, 256 * 56
    0xd400_0001, // svc 0
    0xf100_e01f, // cmp x0, 56
    0x5400_02ab, // b.lt end
    0x8b00_0274, // add x20, x19, x0
    0xaa13_03f5, // mov x21, x19
    0x9140_0e76, // add x22, x19, 3, lsl 12
    0x9120_02d6, // add x22, x22, 256 * 56 - 3 * 4096
    0xaa16_03f7, // mov x23, x22
    // one: make the call at x21, write its result to x22
    0xa8c1_02a8, // ldp x8, x0, [x21], 16
    0xa8c1_0aa1, // ldp x1, x2, [x21], 16
    0xa8c1_12a3, // ldp x3, x4, [x21], 16
    0xf840_86a5, // ldr x5, [x21], 8
    0xd400_0001, // svc 0
    0xf800_86c0, // str x0, [x22], 8
    0xeb14_02bf, // cmp x21, x20
    0x54ff_ff23, // b.lo one
    // write(0, results, their bytes)
    0xd280_0808, // mov x8, 64
    0xd280_0000, // mov x0, 0
    0xaa17_03e1, // mov x1, x23
    0xcb17_02c2, // sub x2, x22, x23
    0xd400_0001, // svc 0
    0xf100_001f, // cmp x0, 0
    0x54ff_fccc, // b.gt next
    // end: exit_group(0)
    0xd280_0bc8, // mov x8, 94
    0xd280_0000, // mov x0, 0
    0xd400_0001, // svc 0
    0x0000_0000, // udf 0
    0x0000_0000, // udf 0
]);

/// Offset of a system call instruction there.
pub(crate) const GADGET: usize = 29 * 4;

const fn bytes(words: [u32; 32]) -> [u8; 128] {
    let mut bytes = [0; 128];
    let mut at = 0;
    while at < bytes.len() {
        bytes[at] = words[at / 4].to_le_bytes()[at % 4];
        at += 1;
    }
    bytes
}

/// Returns an address as page tables know it: the top byte of a pointer may be a tag.
pub(crate) fn untagged(address: usize) -> usize {
    // Bit 55 says whether it is a kernel address, and so what the top byte would be.
    ((address << 8).cast_signed() >> 8).cast_unsigned()
}

/// General registers, as the kernel orders them.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct General {
    x: [u64; 31],
    stack: u64,
    instruction: u64,
    state: u64,
}

/// General registers, and the number of the system call in which the thread is.
#[derive(Clone, Copy)]
pub(crate) struct Registers {
    general: General,
    /// Negative outside of a call.
    number: i32,
}

impl std::fmt::Debug for Registers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registers")
            .field("instruction", &self.general.instruction)
            .field("number", &self.number())
            .field("result", &self.result())
            .finish_non_exhaustive()
    }
}

const GETREGSET: libc::c_uint = 0x4204;
const SETREGSET: libc::c_uint = 0x4205;
/// Sets of registers: `NT_PRSTATUS` and `NT_ARM_SYSTEM_CALL`.
const GENERAL: usize = 1;
const NUMBER: usize = 0x404;

/// Reads or writes a set of registers, all of it.
///
/// # Errors
/// The thread is gone; `EINVAL` if its set is of another size, as that of a program of 32 bits.
///
/// # Safety
/// `T` is plain integers, as the kernel lays out that set.
unsafe fn transfer<T>(request: libc::c_uint, tid: i32, set: usize, of: &mut T) -> io::Result<()> {
    let mut vector = libc::iovec { iov_base: (&raw mut *of).cast(), iov_len: size_of::<T>() };
    // SAFETY: the kernel reads or writes at most as many bytes as the vector names, which live
    // across the call; whatever it writes are integers (the caller).
    let done = unsafe { libc::ptrace(request as _, tid, set, &raw mut vector) };
    match done {
        0 if vector.iov_len == size_of::<T>() => Ok(()),
        0 => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns those of a stopped thread.
pub(in crate::sys) fn read_registers(tid: i32) -> io::Result<Registers> {
    let mut registers = Registers { general: General::default(), number: 0 };
    // SAFETY: the structure is the kernel's.
    unsafe { transfer(GETREGSET, tid, GENERAL, &mut registers.general) }?;
    // SAFETY: this set is one integer.
    unsafe { transfer(GETREGSET, tid, NUMBER, &mut registers.number) }?;
    Ok(registers)
}

/// Sets them.
pub(in crate::sys) fn write_registers(tid: i32, registers: &Registers) -> io::Result<()> {
    let mut copy = *registers;
    // SAFETY: the structure is the kernel's.
    unsafe { transfer(SETREGSET, tid, GENERAL, &mut copy.general) }?;
    // SAFETY: this set is one integer.
    unsafe { transfer(SETREGSET, tid, NUMBER, &mut copy.number) }
}

impl Registers {
    /// No system call: the kernel has nothing to restart.
    const OUTSIDE: i32 = -1;
    /// By what kind of branch an instruction was reached: by none where a thread is put.
    const BRANCH_TYPE: u64 = 3 << 10;
    /// Registers that hold a call's number, and what the helper's loop is given.
    const CALL: usize = 8;
    const PARAMETER: usize = 19;

    /// Address of the next instruction.
    pub(crate) fn instruction(&self) -> usize {
        self.general.instruction as usize
    }

    /// Continues at an address, outside of any system call.
    pub(crate) fn jump(&mut self, to: usize) {
        self.general.instruction = to as u64;
        self.general.state &= !Self::BRANCH_TYPE;
        self.skip();
    }

    /// Number of the system call in which the thread is; `None` outside of one.
    pub(crate) fn number(&self) -> Option<u64> {
        u64::try_from(self.number).ok()
    }

    /// Arguments of the system call in which the thread is; the first only before it has returned.
    pub(crate) fn arguments(&self) -> [u64; 6] {
        std::array::from_fn(|index| self.general.x[index])
    }

    /// Sets one of them; the call is repeated with it.
    pub(crate) fn set_argument(&mut self, index: usize, value: u64) {
        self.general.x[index] = value;
    }

    /// What the system call returns.
    pub(crate) fn result(&self) -> i64 {
        self.general.x[0].cast_signed()
    }

    /// Replaces its result.
    pub(crate) fn set_result(&mut self, result: i64) {
        self.general.x[0] = result.cast_unsigned();
    }

    /// At a stop before a system call: does not make it.
    pub(crate) fn skip(&mut self) {
        self.number = Self::OUTSIDE;
    }

    /// At the instruction of a system call: moves after it, as if it had returned this.
    pub(crate) fn return_from_call(&mut self, result: i64) {
        self.general.instruction += SYSCALL.len() as u64;
        self.set_result(result);
        self.skip();
    }

    /// An address below the stack with this many unused bytes after it.
    pub(crate) fn below_stack(&self, bytes: usize) -> usize {
        (self.general.stack as usize).wrapping_sub(bytes) & !15
    }

    /// At a stop before a system call: goes back to its instruction, so that it is repeated.
    pub(crate) fn rewind(&mut self) {
        self.general.instruction -= SYSCALL.len() as u64;
        self.skip();
    }

    /// Makes a system call with the instruction at `gadget`.
    pub(crate) fn call(&mut self, gadget: usize, number: u64, args: &[u64; 6]) {
        self.jump(gadget);
        self.renumber(number);
        self.general.x[..args.len()].copy_from_slice(args);
    }

    /// Starts code whose one parameter is an address.
    pub(crate) fn enter(&mut self, code: usize, parameter: usize) {
        self.jump(code);
        self.general.x[Self::PARAMETER] = parameter as u64;
    }

    /// Number of the call that is about to report an interruption (-EINTR): the one in which the
    /// thread was seen before, if everything agrees that can be compared.
    pub(crate) fn interrupted(&self, seen: Option<&Seen>) -> Option<u64> {
        let seen = seen.filter(|_| self.result() == -i64::from(libc::EINTR))?;
        let here = self.general;
        let is_same = (seen.instruction, seen.stack) == (here.instruction, here.stack)
            && seen.number == here.x[Self::CALL]
            && seen.args[1..] == here.x[1..seen.args.len()];
        is_same.then_some(seen.number)
    }

    /// Repeats that call.
    pub(crate) fn make_anew(&mut self, seen: Option<&Seen>) {
        if let Some(seen) = seen {
            self.rewind();
            self.set_argument(0, seen.args[0]);
        }
    }

    /// A handler is about to run before the call at the previous instruction is repeated: the call
    /// reports the interruption. Returns whether anything had to be changed for that.
    pub(crate) fn report(&mut self, instruction: usize, number: u64) -> bool {
        let is_at_call = self.instruction() + SYSCALL.len() == instruction
            && self.general.x[Self::CALL] == number;
        if is_at_call {
            self.return_from_call(-i64::from(libc::EINTR));
        }
        is_at_call
    }

    /// Changes the number by which the call at this instruction is made.
    pub(crate) fn renumber(&mut self, number: u64) {
        self.general.x[Self::CALL] = number;
    }
}
