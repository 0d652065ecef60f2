//! An engine in memory that does what bad networks and bad engines do, by a seed.
//!
//! A fault happens to a call with the rate of its kind. One seed and one order of calls give one
//! order of faults. No call waits: what is late is answered as late. What is under way arrives some
//! calls later, in any order.
//!
//! - Z1: without a fault a call does what it says.
//! - Z2: at most one fault happens to a call, and each is counted.
//! - Z3: no lock is held while the function of [`on_calls`](SimEngine::on_calls) runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use zfold_store::pool::Lock;

use crate::engine::{Engine, EngineError};

/// What can go wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SimFault {
    /// A put does nothing and is answered with an error.
    PutLost,
    /// A put is done and answered with an error.
    PutUnanswered,
    /// A put is answered as late, and arrives later.
    PutLate,
    /// A put is done, and arrives later once more.
    PutTwice,
    /// A put is refused.
    PutRefused,
    /// A get is answered with an error.
    GetFailed,
    /// A get finds nothing, for once.
    GetStale,
    /// A get brings the bytes of another object.
    GetForeign,
    /// A get brings bytes of which a bit is wrong.
    GetFlipped,
    /// A deletion does nothing and is answered with an error.
    DeleteLost,
    /// A deletion does a part and is answered with an error.
    DeletePart,
}

const FAULTS: usize = SimFault::DeletePart as usize + 1;

const OF_PUTS: [SimFault; 5] = [
    SimFault::PutLost,
    SimFault::PutUnanswered,
    SimFault::PutLate,
    SimFault::PutTwice,
    SimFault::PutRefused,
];

const OF_GETS: [SimFault; 4] =
    [SimFault::GetFailed, SimFault::GetStale, SimFault::GetForeign, SimFault::GetFlipped];

const OF_DELETES: [SimFault; 2] = [SimFault::DeleteLost, SimFault::DeletePart];

/// How often each fault happens. The default is never.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimFaults {
    per_mille: [u16; FAULTS],
}

impl SimFaults {
    /// Returns the same with another rate of one fault, in calls of a thousand that can have it.
    #[must_use]
    pub fn with(mut self, fault: SimFault, per_mille: u16) -> Self {
        self.per_mille[fault as usize] = per_mille;
        self
    }

    /// Returns faults that all happen at the same rate.
    #[must_use]
    pub fn all(per_mille: u16) -> Self {
        Self { per_mille: [per_mille; FAULTS] }
    }
}

type OnCall = Arc<dyn Fn() + Send + Sync>;

/// An engine in memory, with faults. See the module's source for what it keeps true.
pub struct SimEngine {
    object_bytes: usize,
    absent: AtomicBool,
    state: Lock<State>,
    on_call: Lock<Option<OnCall>>,
}

#[derive(Default)]
struct State {
    faults: SimFaults,
    random: u64,
    objects: BTreeMap<u64, Vec<u8>>,
    /// Puts under way, with the calls until they arrive.
    under_way: Vec<(u64, u64, Vec<u8>)>,
    /// Numbers that were deleted, and those of them that arrived again later.
    deleted: BTreeSet<u64>,
    ghosts: BTreeSet<u64>,
    calls: u64,
    renewals: u64,
    faults_total: u64,
}

impl State {
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Draws what happens to a call (Z2).
    fn draw(&mut self, of: &[SimFault]) -> Option<SimFault> {
        let happens = |state: &mut Self, fault: SimFault| {
            let rate = state.faults.per_mille[fault as usize];
            rate > 0 && state.below(1000) < u64::from(rate)
        };
        let fault = of.iter().copied().find(|&fault| happens(self, fault))?;
        self.faults_total += 1;
        Some(fault)
    }

    fn store(&mut self, number: u64, bytes: Vec<u8>) {
        if self.deleted.contains(&number) {
            self.ghosts.insert(number);
        }
        self.objects.insert(number, bytes);
    }

    fn send(&mut self, number: u64, bytes: &[u8]) {
        let calls = 1 + self.below(20);
        self.under_way.push((calls, number, bytes.to_vec()));
    }

    /// Lets a call pass for what is under way; what is due arrives.
    fn arrive(&mut self) {
        self.under_way.iter_mut().for_each(|(calls, ..)| *calls -= 1);
        while let Some(at) = self.under_way.iter().position(|(calls, ..)| *calls == 0) {
            let (_, number, bytes) = self.under_way.swap_remove(at);
            self.store(number, bytes);
        }
    }

    fn remove(&mut self, number: u64) {
        self.objects.remove(&number);
        self.ghosts.remove(&number);
        self.deleted.insert(number);
    }
}

impl SimEngine {
    /// Returns an engine with faults by `seed`, which likes objects of 64 KiB.
    #[must_use]
    pub fn new(seed: u64, faults: SimFaults) -> Self {
        let state = State { faults, random: seed, ..State::default() };
        Self {
            object_bytes: 64 << 10,
            absent: AtomicBool::new(false),
            state: Lock::new(state),
            on_call: Lock::new(None),
        }
    }

    /// Returns the same with another length of objects, in bytes.
    #[must_use]
    pub fn with_object_bytes(mut self, object_bytes: usize) -> Self {
        self.object_bytes = object_bytes;
        self
    }

    /// Has other faults from now on.
    pub fn set_faults(&self, faults: SimFaults) {
        self.state.lock().faults = faults;
    }

    /// Answers no call from now on, or does.
    pub fn set_absent(&self, absent: bool) {
        self.absent.store(absent, Ordering::SeqCst);
    }

    /// Calls `function` in the midst of calls: before each has an effect, and before each answers.
    /// It may itself call the engine.
    pub fn on_calls(&self, function: impl Fn() + Send + Sync + 'static) {
        *self.on_call.lock() = Some(Arc::new(function));
    }

    /// Lets everything arrive that is under way.
    pub fn settle(&self) {
        while !self.state.lock().under_way.is_empty() {
            self.state.lock().arrive();
        }
    }

    /// Returns the calls so far.
    pub fn calls_total(&self) -> u64 {
        self.state.lock().calls
    }

    /// Returns the renewals that were heard so far.
    pub fn renewals_total(&self) -> u64 {
        self.state.lock().renewals
    }

    /// Returns the faults so far; calls of an absent engine count, too.
    pub fn faults_total(&self) -> u64 {
        self.state.lock().faults_total
    }

    /// Returns the objects that are there.
    pub fn objects(&self) -> u64 {
        self.state.lock().objects.len() as u64
    }

    /// Returns those of the objects that arrived after they had been deleted.
    pub fn ghosts(&self) -> u64 {
        self.state.lock().ghosts.len() as u64
    }

    /// Returns whether `bytes` lie anywhere in an object.
    pub fn contains(&self, bytes: &[u8]) -> bool {
        let state = self.state.lock();
        state.objects.values().any(|object| object.windows(bytes.len()).any(|at| at == bytes))
    }

    /// Changes a bit of every object for good, or loses every object.
    pub fn damage(&self, lose: bool) {
        let mut state = self.state.lock();
        if lose {
            state.objects.clear();
        }
        state.objects.values_mut().for_each(|object| object.iter_mut().for_each(|b| *b ^= 1));
    }

    fn interrupt(&self) {
        let function = self.on_call.lock().clone();
        if let Some(function) = function {
            function();
        }
    }

    /// Does a call: what it draws, and what `effect` makes of that.
    fn call<T>(
        &self,
        of: &[SimFault],
        deadline: Instant,
        effect: impl FnOnce(&mut State, Option<SimFault>) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        self.interrupt();
        let answer = {
            let mut state = self.state.lock();
            state.calls += 1;
            state.arrive();
            if self.absent.load(Ordering::SeqCst) {
                state.faults_total += 1;
                return Err(EngineError::Unreachable("it is absent".into()));
            }
            if deadline <= Instant::now() {
                return Err(EngineError::Late);
            }
            let fault = state.draw(of);
            effect(&mut state, fault)
        };
        self.interrupt();
        answer
    }
}

impl Engine for SimEngine {
    fn name(&self) -> &str {
        "a simulated engine"
    }

    fn object_bytes(&self) -> usize {
        self.object_bytes
    }

    fn put(&self, number: u64, bytes: &[u8], deadline: Instant) -> Result<(), EngineError> {
        self.call(&OF_PUTS, deadline, |state, fault| match fault {
            Some(SimFault::PutLost) => Err(EngineError::Unreachable("it was lost".into())),
            Some(SimFault::PutUnanswered) => {
                state.store(number, bytes.to_vec());
                Err(EngineError::Late)
            }
            Some(SimFault::PutLate) => {
                state.send(number, bytes);
                Err(EngineError::Late)
            }
            Some(SimFault::PutRefused) => Err(EngineError::Refused("it is full".into())),
            other => {
                if other == Some(SimFault::PutTwice) {
                    state.send(number, bytes);
                }
                state.store(number, bytes.to_vec());
                Ok(())
            }
        })
    }

    fn get(
        &self,
        number: u64,
        offset: usize,
        out: &mut [u8],
        deadline: Instant,
    ) -> Result<(), EngineError> {
        self.call(&OF_GETS, deadline, |state, fault| {
            let number = match fault {
                Some(SimFault::GetFailed) => return Err(EngineError::Late),
                Some(SimFault::GetStale) => return Err(EngineError::Missing),
                Some(SimFault::GetForeign) => {
                    let at = state.below(state.objects.len().max(1) as u64) as usize;
                    state.objects.keys().nth(at).copied().unwrap_or(number)
                }
                _ => number,
            };
            let bit = state.next() as usize % (8 * out.len()).max(1);
            let object = state.objects.get(&number).ok_or(EngineError::Missing)?;
            let end = offset.checked_add(out.len()).ok_or(EngineError::Missing)?;
            out.copy_from_slice(object.get(offset..end).ok_or(EngineError::Missing)?);
            if fault == Some(SimFault::GetFlipped) {
                out[bit / 8] ^= 1 << (bit % 8);
            }
            Ok(())
        })
    }

    fn delete(&self, numbers: &[u64], deadline: Instant) -> Result<(), EngineError> {
        self.call(&OF_DELETES, deadline, |state, fault| {
            let done = match fault {
                Some(SimFault::DeleteLost) => 0,
                Some(SimFault::DeletePart) => numbers.len() / 2,
                _ => numbers.len(),
            };
            numbers[..done].iter().for_each(|&number| state.remove(number));
            match fault {
                Some(_) => Err(EngineError::Late),
                None => Ok(()),
            }
        })
    }

    fn renew(&self, _: &[u64], deadline: Instant) -> Result<(), EngineError> {
        self.call(&[], deadline, |state, _| {
            state.renewals += 1;
            Ok(())
        })
    }
}

impl fmt::Debug for SimEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimEngine").field("objects", &self.objects()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::conformance;

    #[test]
    fn without_faults_it_does_what_an_engine_must() {
        conformance(&SimEngine::new(1, SimFaults::default()));
    }
}
