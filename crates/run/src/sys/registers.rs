//! The registers of a stopped thread on x86-64, by what they mean to a system call.

/// `AUDIT_ARCH_*` of the calls that are known here.
pub(crate) const ARCH: u32 = 0xC000_003E;

/// The instruction that makes a system call.
pub(crate) const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// General registers.
#[derive(Clone, Copy)]
pub(crate) struct Registers(pub(super) libc::user_regs_struct);

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

    /// Goes on at an address, outside of any system call.
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

    /// Sets one of them; the call is made anew with it.
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

    /// Has it return something else.
    pub(crate) fn set_result(&mut self, result: i64) {
        self.0.rax = result.cast_unsigned();
    }

    /// At a stop before a system call: does not make it.
    pub(crate) fn skip(&mut self) {
        self.0.orig_rax = Self::NO_CALL;
    }

    /// At the instruction of a system call: behind it, as if it had returned this.
    pub(crate) fn return_from_call(&mut self, result: i64) {
        self.0.rip += SYSCALL.len() as u64;
        self.0.rax = result.cast_unsigned();
        self.skip();
    }

    /// An address below the stack with so many bytes behind it that nobody uses.
    pub(crate) fn below_stack(&self, bytes: usize) -> usize {
        /// What functions that call none use without moving the stack pointer.
        const RED_ZONE: usize = 128;
        (self.0.rsp as usize).wrapping_sub(RED_ZONE + bytes) & !15
    }

    /// At a stop before a system call: back to its instruction, so that it is made anew.
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
}
