//! A virtual processor of KVM that counts in pages of the memory: its writes go by page tables of
//! their own, which have to follow when a page is protected or leaves.

use std::time::{Duration, Instant};

use kvm_bindings::kvm_userspace_memory_region;
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};

use super::{Memory, PAGE};

/// Where its program is, and the pages in whose first words it counts.
const PROGRAM: u64 = 1;
const COUNTED: std::ops::Range<u64> = 8..16;

/// Rounds after which it tells of itself.
const ROUNDS: u64 = 256;

/// Returns instructions of 16 bits: increment the word of each page, and BX; go back, but for each
/// time when BL is 0, at which one byte is written to a port.
fn program() -> Vec<u8> {
    let mut code: Vec<u8> =
        COUNTED.flat_map(|number| [0xff, 0x06, 0x00, (number << 4) as u8]).collect();
    code.extend([0x43, 0x84, 0xdb]);
    let back = |code: &[u8]| (-(code.len() as i64 + 2)) as u8;
    code.extend([0x75, back(&code)]);
    code.extend([0xe6, 0x10]);
    code.extend([0xeb, back(&code)]);
    code
}

/// Returns a processor at the beginning of the program, and what keeps it.
fn made(memory: Memory) -> Result<(VcpuFd, VmFd), kvm_ioctls::Error> {
    let vm = Kvm::new()?.create_vm()?;
    let region = kvm_userspace_memory_region {
        slot: 0,
        flags: 0,
        guest_phys_addr: 0,
        memory_size: memory.pages * PAGE as u64,
        userspace_addr: memory.base as u64,
    };
    // SAFETY: mapped for as long as the process lives, and reached by volatile accesses only.
    unsafe { vm.set_user_memory_region(region) }?;
    let processor = vm.create_vcpu(0)?;
    let mut special = processor.get_sregs()?;
    for segment in [&mut special.cs, &mut special.ds] {
        (segment.base, segment.selector) = (0, 0);
    }
    processor.set_sregs(&special)?;
    let mut registers = processor.get_regs()?;
    (registers.rip, registers.rbx, registers.rflags) = (PROGRAM * PAGE as u64, 0, 2);
    processor.set_regs(&registers)?;
    Ok((processor, vm))
}

/// Lets a processor run until it tells of itself; otherwise returns what it does instead.
fn told(processor: &mut VcpuFd) -> Result<(), String> {
    loop {
        match processor.run() {
            Ok(VcpuExit::IoOut(..)) => return Ok(()),
            Err(error) if error.errno() == libc::EINTR => {}
            other => return Err(format!("{other:?}")),
        }
    }
}

/// Has a processor count for so long; returns whether each page has what it counted to, and how
/// many rounds it made. `without` if the system has no such processor.
pub(super) fn count(memory: Memory, time: Duration) -> String {
    assert!(memory.pages >= COUNTED.end);
    for (at, word) in program().chunks(8).enumerate() {
        let mut bytes = [0x90; 8];
        bytes[..word.len()].copy_from_slice(word);
        memory.write_word(PROGRAM, at, u64::from_le_bytes(bytes));
    }
    COUNTED.for_each(|number| memory.write(number, 0));
    let (mut processor, _vm) = match made(memory) {
        Ok(made) => made,
        Err(error) => return format!("without: {error}"),
    };
    let (began, mut rounds) = (Instant::now(), 0);
    // It ends where it tells of itself: a signal may interrupt it between two such places.
    while rounds == 0 || began.elapsed() < time {
        match told(&mut processor) {
            Ok(()) => rounds += ROUNDS,
            // An emulated processor may know less.
            Err(other) if rounds == 0 => return format!("without: {other}"),
            Err(other) => return format!("it ended after {rounds} rounds: {other}"),
        }
    }
    match { COUNTED }.find(|&number| memory.read(number) & 0xffff != rounds & 0xffff) {
        Some(number) => {
            let found = memory.read(number) & 0xffff;
            format!(
                "page {number} has {found} after {rounds} rounds, {} of 16 bits",
                rounds & 0xffff
            )
        }
        None => format!("right after {rounds}"),
    }
}
