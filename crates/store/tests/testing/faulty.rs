//! A backing that does what bad disks do, by a seed or on request.
//!
//! [`FaultyBacking`] stands before another backing. For every call it draws, for each kind of fault
//! that the call can have, whether that happens, each with a rate of its own. One seed and one
//! order of calls give one order of faults. Single faults can also be requested, with
//! [`FaultyBacking::inject`].
//!
//! Some faults are reported, as errors, and some are silent: bits that flip, and writes that go
//! nowhere or elsewhere. A store must survive the first kind and detect the second. No fault makes
//! a call hang.
//!
//! # Invariants
//!
//! - Q1: without a fault a call is passed on as it is.
//! - Q2: at most one fault happens to a call, and each one is counted.
//! - Q3: no range but that of the call is touched, except by a misdirected write.

use std::collections::VecDeque;
use std::io;

use rustix::io::Errno;
use zfold_pool::Lock;

use super::contract::{Backing, check_access};

/// What can go wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// A read fails with `EIO`.
    ReadError,
    /// A read succeeds, and one bit of it is wrong. The backing still holds the right one.
    FlippedBit,
    /// A write fails with `EIO` and changes nothing.
    WriteError,
    /// A write fails with `ENOSPC` and changes nothing.
    NoSpace,
    /// A write fails with `EIO` after a part of the data, possibly none, has been written.
    ShortWrite,
    /// A write is reported as done and changes nothing.
    LostWrite,
    /// A write is reported as done and lands at another place. It needs a backing in which there
    /// is one that does not overlap, and does not happen in others.
    MisdirectedWrite,
    /// A sync fails with `EIO` and does not happen.
    SyncError,
}

impl Fault {
    /// Every fault, in the order in which they are listed to people. For a call that could have
    /// several, the first one drawn happens.
    pub const ALL: [Self; 8] = [
        Self::ReadError,
        Self::FlippedBit,
        Self::WriteError,
        Self::NoSpace,
        Self::ShortWrite,
        Self::LostWrite,
        Self::MisdirectedWrite,
        Self::SyncError,
    ];

    /// Returns the name by which the fault is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadError => "read-error",
            Self::FlippedBit => "flipped-bit",
            Self::WriteError => "write-error",
            Self::NoSpace => "no-space",
            Self::ShortWrite => "short-write",
            Self::LostWrite => "lost-write",
            Self::MisdirectedWrite => "misdirected-write",
            Self::SyncError => "sync-error",
        }
    }
}

/// The faults that a read can have.
const OF_READS: [Fault; 2] = [Fault::ReadError, Fault::FlippedBit];

/// The faults that a write can have.
const OF_WRITES: [Fault; 5] = [
    Fault::WriteError,
    Fault::NoSpace,
    Fault::ShortWrite,
    Fault::LostWrite,
    Fault::MisdirectedWrite,
];

/// The faults that a sync can have.
const OF_SYNCS: [Fault; 1] = [Fault::SyncError];

/// How often each fault happens. The default is never.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    per_mille: [u16; Fault::ALL.len()],
}

impl Faults {
    /// Returns the same with another rate of one fault: of a thousand calls that can have it, so
    /// many do; 1000 and above is all of them.
    #[must_use]
    pub fn with(mut self, fault: Fault, per_mille: u16) -> Self {
        self.per_mille[fault as usize] = per_mille;
        self
    }
}

/// A backing with faults.
#[derive(Debug)]
pub struct FaultyBacking<B> {
    inner: B,
    /// Not held while `inner` is called.
    state: Lock<FaultState>,
}

#[derive(Debug)]
struct FaultState {
    faults: Faults,
    /// Faults that were requested one by one.
    injected: VecDeque<Fault>,
    /// Times that each fault happened.
    counts: [u64; Fault::ALL.len()],
    random: u64,
}

impl<B: Backing> FaultyBacking<B> {
    /// Puts `faults`, drawn by `seed`, before `inner`.
    pub fn new(inner: B, faults: Faults, seed: u64) -> Self {
        let counts = [0; Fault::ALL.len()];
        let state = FaultState { faults, injected: VecDeque::new(), counts, random: seed };
        Self { inner, state: Lock::new(state) }
    }

    /// Replaces the rates. The order of faults goes on where it was.
    pub fn set(&self, faults: Faults) {
        self.state.lock().faults = faults;
    }

    /// Ends all faults, including requested ones. What they have done stays done.
    pub fn heal(&self) {
        let mut state = self.state.lock();
        state.faults = Faults::default();
        state.injected.clear();
    }

    /// Makes `fault` happen to the next call that can have it, whatever its rate. Of several asked
    /// for, each happens once, in their order.
    pub fn inject(&self, fault: Fault) {
        self.state.lock().injected.push_back(fault);
    }

    /// Returns how often `fault` has happened.
    pub fn count(&self, fault: Fault) -> u64 {
        self.state.lock().counts[fault as usize]
    }

    /// Returns the backing behind the faults.
    pub fn inner(&self) -> &B {
        &self.inner
    }

    /// Draws the fault of a call, if it has one.
    fn draw(&self, candidates: &[Fault]) -> Option<Fault> {
        self.state.lock().draw(candidates)
    }

    /// Returns a number below `bound`, which is not 0.
    fn below(&self, bound: u64) -> u64 {
        self.state.lock().below(bound)
    }

    /// Returns an aligned offset at which `len` bytes do not overlap those at `offset`, or `None`
    /// if there is none.
    fn elsewhere(&self, offset: u64, len: u64) -> Option<u64> {
        let align = self.inner.align() as u64;
        let last = self.inner.len() - len;
        // Places that end before the range, and places that begin after it.
        let before = (offset + align).saturating_sub(len) / align;
        let after = (last + align).saturating_sub(offset + len) / align;
        if len == 0 || before + after == 0 {
            return None;
        }
        let place = self.below(before + after);
        Some(if place < before { place * align } else { offset + len + (place - before) * align })
    }
}

impl FaultState {
    /// Returns the first of `candidates` that was requested or is drawn, and counts it.
    fn draw(&mut self, candidates: &[Fault]) -> Option<Fault> {
        // As many numbers for each call as it has candidates, whatever happens to it.
        let mut fault = None;
        for &candidate in candidates {
            let hit = self.below(1000) < u64::from(self.faults.per_mille[candidate as usize]);
            fault = fault.or(hit.then_some(candidate));
        }
        if let Some(at) = self.injected.iter().position(|asked| candidates.contains(asked)) {
            fault = self.injected.remove(at);
        }
        if let Some(fault) = fault {
            self.counts[fault as usize] += 1;
        }
        fault
    }

    /// The generator SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
    /// Generators, 2014).
    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

impl<B: Backing> Backing for FaultyBacking<B> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn align(&self) -> usize {
        self.inner.align()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        check_access(self, offset, out)?;
        match self.draw(&OF_READS) {
            Some(Fault::ReadError) => Err(Errno::IO.into()),
            Some(_) => {
                self.inner.read_at(offset, out)?;
                if !out.is_empty() {
                    let bit = self.below(out.len() as u64 * 8);
                    out[(bit / 8) as usize] ^= 1 << (bit % 8);
                }
                Ok(())
            }
            None => self.inner.read_at(offset, out),
        }
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        check_access(self, offset, data)?;
        match self.draw(&OF_WRITES) {
            Some(Fault::NoSpace) => Err(Errno::NOSPC.into()),
            Some(Fault::ShortWrite) => {
                let align = self.inner.align();
                let blocks = (data.len() / align).max(1) as u64;
                let written = self.below(blocks) as usize * align;
                self.inner.write_at(offset, &data[..written])?;
                Err(Errno::IO.into())
            }
            Some(Fault::LostWrite) => Ok(()),
            Some(Fault::MisdirectedWrite) => {
                let place = self.elsewhere(offset, data.len() as u64);
                if place.is_none() {
                    self.state.lock().counts[Fault::MisdirectedWrite as usize] -= 1;
                }
                self.inner.write_at(place.unwrap_or(offset), data)
            }
            Some(_) => Err(Errno::IO.into()),
            None => self.inner.write_at(offset, data),
        }
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.discard(offset, len)
    }

    fn wants_discards(&self) -> bool {
        self.inner.wants_discards()
    }

    fn memory_bytes(&self) -> u64 {
        self.inner.memory_bytes()
    }

    fn sync(&self) -> io::Result<()> {
        self.draw(&OF_SYNCS).map_or_else(|| self.inner.sync(), |_| Err(Errno::IO.into()))
    }
}
