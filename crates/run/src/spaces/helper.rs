//! The helper of an address space: makes calls there, and has the stagings to which pages are moved
//! that leave ([`crate::reclaim::mover`]).

use std::io;
use std::ops::Range;

use crate::link::{Attached, Call, Inside};
use crate::spaces::staging::Stagings;
use crate::sys::seccomp::NO_KEY;
use zfold_uffd::DONTNEED_LOCKED;
use zfold_uffd::Uffd;
use zfold_uffd::page::page_len;

/// The offset in the arguments of the spare page's description, which those of the stagings follow.
const REQUESTS: usize = 12 << 10;
/// Bytes of each.
const REGISTER: usize = 4 * size_of::<u64>();

/// The helper of one address space.
pub(crate) struct Helper {
    pub inside: Box<dyn Inside>,
    pub stagings: Stagings,
    /// Where arguments of its calls may be written, up to [`REQUESTS`].
    pub arguments: usize,
    /// Number of the userfaultfd in the helper.
    number: u64,
    /// Its thread, by its number in the namespace of the program, and by that here.
    pub thread: i32,
    pub thread_here: i32,
}

impl Helper {
    /// Takes over a helper and empties its stagings: one for plain memory, and others for memory of
    /// other protections. The last page of the first is spare: it stays registered.
    ///
    /// # Errors
    /// The helper is gone.
    pub(crate) fn new(attached: Attached) -> io::Result<Self> {
        let Attached { number, mut inside, pid, staging, others, arguments, .. } = attached;
        let spare = staging.end - page_len()..staging.end;
        let stagings = Stagings::new(pid, staging.start..spare.start, others);
        let described = std::iter::once(&spare).chain(stagings.ranges());
        let requests = described.flat_map(|range| {
            let request = Uffd::register_request(range);
            [request.range.start, request.range.len, request.mode, request.ioctls]
        });
        let requests: Vec<u8> = requests.flat_map(u64::to_ne_bytes).collect();
        inside.write(arguments + REQUESTS, &requests)?;
        let (thread, thread_here) = (attached.helper, attached.helper_here);
        let mut helper = Self { inside, stagings, arguments, number, thread, thread_here };
        helper.clean()?;
        let register = helper.control(Uffd::REGISTER_CODE, REQUESTS);
        match helper.call(&[register])?[0] {
            error @ ..0 => Err(io::Error::from_raw_os_error(-error as i32)),
            _ => Ok(helper),
        }
    }

    /// Makes calls in order; returns what each returned.
    ///
    /// # Errors
    /// The helper is gone.
    pub(crate) fn call(&mut self, calls: &[Call]) -> io::Result<Vec<i64>> {
        let mut results = vec![0; calls.len()];
        if !calls.is_empty() {
            self.inside.call(calls, &mut results)?;
        }
        Ok(results)
    }

    /// Drops what the last batch left in the stagings. Without the lock of the space.
    ///
    /// # Errors
    /// The helper is gone.
    pub(crate) fn clean(&mut self) -> io::Result<()> {
        let dirty = self.stagings.take_dirty();
        let calls: Vec<_> = self.drop_calls(dirty).collect();
        self.call(&calls).map(drop)
    }

    /// The calls that empty these stagings; including locked pages, if the program has locked all
    /// its memory.
    pub(crate) fn drop_calls(&self, of: u8) -> impl Iterator<Item = Call> {
        let numbered = self.stagings.ranges().enumerate();
        let used = numbered.filter(move |(number, _)| of & (1 << number) != 0);
        used.map(|(_, range)| madvise(range, DONTNEED_LOCKED))
    }

    /// The calls of this `code` that register or unregister these stagings.
    pub(crate) fn register_calls(&self, code: u64, of: u8) -> impl Iterator<Item = Call> {
        let used = (0..u8::BITS as usize).filter(move |into| of & (1 << into) != 0);
        used.map(move |into| self.control(code, REQUESTS + (1 + into) * REGISTER))
    }

    /// An ioctl of the userfaultfd whose argument lies at this offset.
    pub(crate) fn control(&self, code: u64, argument: usize) -> Call {
        let argument = (self.arguments + argument) as u64;
        let args = [self.number, code, argument, 0, 0, 0];
        Call { number: libc::SYS_ioctl as u64, args }
    }
}

/// The call that gives advice about memory.
pub(crate) fn madvise(range: &Range<usize>, advice: libc::c_int) -> Call {
    let args = [range.start as u64, range.len() as u64, advice as u64, 0, 0, 0];
    Call { number: libc::SYS_madvise as u64, args }
}

/// The call that gives memory a protection.
pub(crate) fn protect(range: &Range<usize>, protection: u8) -> Call {
    let args = [range.start, range.len(), protection.into(), NO_KEY as usize, 0, 0];
    Call { number: libc::SYS_pkey_mprotect as u64, args: args.map(|arg| arg as u64) }
}
