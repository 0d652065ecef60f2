//! x86-64. The kernel shows at a stop which call it interrupts and what that is about to return;
//! with these registers restored, it decides whether the call is restarted.

use std::io;
use std::mem::MaybeUninit;

use super::common::{Foreign, Seen};

/// `AUDIT_ARCH_*` of the calls that are known here.
pub(crate) const ARCH: u32 = 0xC000_003E;

/// Programs of 32 bits: i386.
pub(crate) const FOREIGN: Foreign =
    Foreign { arch: 0x4000_0003, watched: [2, 120, 163, 219, 435, 440] };

/// Calls of the x32 interface have this bit in their number.
pub(crate) const OTHER_NUMBERS: Option<u32> = Some(0x4000_0000);

/// The instruction that makes a system call.
pub(crate) const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// Where it may begin.
pub(crate) const SYSCALL_ALIGN: usize = 1;

pub(crate) const FORK: libc::c_long = libc::SYS_fork;
pub(crate) const VFORK: libc::c_long = libc::SYS_vfork;
pub(crate) const EPOLL_WAIT: libc::c_long = libc::SYS_epoll_wait;

/// Which argument of clone says where the number of a child is cleared.
pub(crate) const CHILD_TID: usize = 3;

/// Whether the kernel goes back to the instruction of an interrupted call before it stops the
/// thread, and shows neither its number nor its result.
pub(crate) const REWINDS: bool = false;

/// The helper's loop; `rbx` holds the address of the calls, which the results follow. It needs no
/// stack.
#[rustfmt::skip]
pub(crate) const LOOP: [u8; 120] = [
    // next: read(0, calls, 256 calls)
    0x31, 0xc0,                                 // xor eax, eax
    0x31, 0xff,                                 // xor edi, edi
    0x48, 0x89, 0xde,                           // mov rsi, rbx
    0xba, 0x00, 0x38, 0x00, 0x00,               // mov edx, 256 * 56
    0x0f, 0x05,                                 // syscall
    0x48, 0x83, 0xf8, 0x38,                     // cmp rax, 56
    0x7c, 0x56,                                 // jl end
    0x4c, 0x8d, 0x2c, 0x03,                     // lea r13, [rbx + rax]
    0x49, 0x89, 0xde,                           // mov r14, rbx
    0x4c, 0x8d, 0xbb, 0x00, 0x38, 0x00, 0x00,   // lea r15, [rbx + 256 * 56]
    // one: make the call at r14, write its result to r15
    0x49, 0x8b, 0x06,                           // mov rax, [r14]
    0x49, 0x8b, 0x7e, 0x08,                     // mov rdi, [r14 + 8]
    0x49, 0x8b, 0x76, 0x10,                     // mov rsi, [r14 + 16]
    0x49, 0x8b, 0x56, 0x18,                     // mov rdx, [r14 + 24]
    0x4d, 0x8b, 0x56, 0x20,                     // mov r10, [r14 + 32]
    0x4d, 0x8b, 0x46, 0x28,                     // mov r8, [r14 + 40]
    0x4d, 0x8b, 0x4e, 0x30,                     // mov r9, [r14 + 48]
    0x0f, 0x05,                                 // syscall
    0x49, 0x89, 0x07,                           // mov [r15], rax
    0x49, 0x83, 0xc6, 0x38,                     // add r14, 56
    0x49, 0x83, 0xc7, 0x08,                     // add r15, 8
    0x4d, 0x39, 0xee,                           // cmp r14, r13
    0x72, 0xd3,                                 // jb one
    // write(0, results, their bytes)
    0xb8, 0x01, 0x00, 0x00, 0x00,               // mov eax, 1
    0x31, 0xff,                                 // xor edi, edi
    0x48, 0x8d, 0xb3, 0x00, 0x38, 0x00, 0x00,   // lea rsi, [rbx + 256 * 56]
    0x4c, 0x89, 0xfa,                           // mov rdx, r15
    0x48, 0x29, 0xf2,                           // sub rdx, rsi
    0x0f, 0x05,                                 // syscall
    0x48, 0x85, 0xc0,                           // test rax, rax
    0x7f, 0x96,                                 // jg next
    // end: exit_group(0)
    0xb8, 0xe7, 0x00, 0x00, 0x00,               // mov eax, 231
    0xbf, 0x00, 0x00, 0x00, 0x00,               // mov edi, 0
    0x0f, 0x05,                                 // syscall
    0x0f, 0x0b,                                 // ud2
];
/// Offset of a system call instruction there.
pub(crate) const GADGET: usize = 116;

/// Returns an address as page tables know it.
pub(crate) fn untagged(address: usize) -> usize {
    address
}

/// -ERESTARTNOHAND: restarted unless a signal handler runs.
const RESTART_UNLESS_HANDLED: i64 = -514;

/// General registers.
#[derive(Clone, Copy)]
pub(crate) struct Registers(libc::user_regs_struct);

/// Returns those of a stopped thread.
pub(in crate::sys) fn read_registers(tid: i32) -> io::Result<Registers> {
    let mut raw = MaybeUninit::uninit();
    // SAFETY: the kernel fills the structure, which is the one of this architecture.
    let done = unsafe { libc::ptrace(libc::PTRACE_GETREGS, tid, 0, raw.as_mut_ptr()) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it has filled it.
    Ok(Registers(unsafe { raw.assume_init() }))
}

/// Sets them.
pub(in crate::sys) fn write_registers(tid: i32, registers: &Registers) -> io::Result<()> {
    // SAFETY: the kernel reads the structure, which is the one of this architecture.
    let done = unsafe { libc::ptrace(libc::PTRACE_SETREGS, tid, 0, &raw const registers.0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl std::fmt::Debug for Registers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registers")
            .field("instruction", &self.0.rip)
            .field("number", &self.number())
            .field("result", &self.result())
            .finish_non_exhaustive()
    }
}

impl Registers {
    /// No system call: the kernel has nothing to restart.
    const NO_CALL: u64 = u64::MAX;

    /// Address of the next instruction.
    pub(crate) fn instruction(&self) -> usize {
        self.0.rip as usize
    }

    /// Continues at an address, outside of any system call.
    pub(crate) fn jump(&mut self, to: usize) {
        self.0.rip = to as u64;
        self.0.orig_rax = Self::NO_CALL;
    }

    /// Number of the system call in which the thread is; `None` outside of one.
    pub(crate) fn number(&self) -> Option<u64> {
        (self.0.orig_rax != Self::NO_CALL).then_some(self.0.orig_rax)
    }

    /// Arguments of the system call in which the thread is.
    pub(crate) fn arguments(&self) -> [u64; 6] {
        [self.0.rdi, self.0.rsi, self.0.rdx, self.0.r10, self.0.r8, self.0.r9]
    }

    /// Sets one of them; the call is repeated with it.
    pub(crate) fn set_argument(&mut self, index: usize, value: u64) {
        let registers = &mut self.0;
        let all = [
            &mut registers.rdi,
            &mut registers.rsi,
            &mut registers.rdx,
            &mut registers.r10,
            &mut registers.r8,
            &mut registers.r9,
        ];
        *all[index] = value;
    }

    /// What the system call returns.
    pub(crate) fn result(&self) -> i64 {
        self.0.rax.cast_signed()
    }

    /// Replaces its result.
    pub(crate) fn set_result(&mut self, result: i64) {
        self.0.rax = result.cast_unsigned();
    }

    /// At a stop before a system call: does not make it.
    pub(crate) fn skip(&mut self) {
        self.0.orig_rax = Self::NO_CALL;
    }

    /// At the instruction of a system call: moves after it, as if it had returned this.
    pub(crate) fn return_from_call(&mut self, result: i64) {
        self.0.rip += SYSCALL.len() as u64;
        self.0.rax = result.cast_unsigned();
        self.skip();
    }

    /// An address below the stack with this many unused bytes after it.
    pub(crate) fn below_stack(&self, bytes: usize) -> usize {
        /// Bytes that leaf functions use without moving the stack pointer.
        const RED_ZONE: usize = 128;
        (self.0.rsp as usize).wrapping_sub(RED_ZONE + bytes) & !15
    }

    /// At a stop before a system call: goes back to its instruction, so that it is repeated.
    pub(crate) fn rewind(&mut self) {
        self.0.rip -= SYSCALL.len() as u64;
        self.0.rax = self.0.orig_rax;
        self.0.orig_rax = Self::NO_CALL;
    }

    /// Makes a system call with the instruction at `gadget`.
    pub(crate) fn call(&mut self, gadget: usize, number: u64, args: &[u64; 6]) {
        self.jump(gadget);
        self.0.rax = number;
        [self.0.rdi, self.0.rsi, self.0.rdx, self.0.r10, self.0.r8, self.0.r9] = *args;
    }

    /// Starts code whose one parameter is an address.
    pub(crate) fn enter(&mut self, code: usize, parameter: usize) {
        self.jump(code);
        self.0.rbx = parameter as u64;
    }

    /// Number of the call that is about to report an interruption (-EINTR).
    pub(crate) fn interrupted(&self, _: Option<&Seen>) -> Option<u64> {
        self.number().filter(|_| self.result() == -i64::from(libc::EINTR))
    }

    /// Repeats that call, unless a handler runs before.
    pub(crate) fn make_anew(&mut self, _: Option<&Seen>) {
        self.set_result(RESTART_UNLESS_HANDLED);
    }

    /// A handler is about to run before the call at the previous instruction is repeated: the call
    /// reports the interruption. Returns whether anything had to be changed for that.
    pub(crate) fn report(&mut self, _: usize, _: u64) -> bool {
        // The kernel does so itself.
        false
    }

    /// Changes the number by which the call at this instruction is made.
    pub(crate) fn renumber(&mut self, number: u64) {
        self.0.rax = number;
    }
}
