//! Faults that wait for room, and which of them is answered first.
//!
//! The oldest, so that nobody waits long. But where more threads wait than there is room for, each
//! would get its page and lose it before it gets the next one, and all would stand still. So in a
//! crowd the newest goes first: it is of a program that has just got another page, and runs. Every
//! sixteenth time it is the oldest, so that each gets its turn.

use std::collections::VecDeque;

use crate::link::SpaceId;
use crate::spaces::asked::Pending;

/// More faults than this are a crowd.
const CROWD: usize = 32;
/// In a crowd, every so manyth fault that is answered is the oldest.
const TURN: u32 = 16;

/// Faults in the order in which they came.
#[derive(Default)]
pub(crate) struct Waiting {
    faults: VecDeque<Pending>,
    /// Counts the faults that were taken out.
    turn: u32,
}

impl Waiting {
    /// Adds a fault. One that was here before has its place again.
    pub(crate) fn add(&mut self, pending: Pending) {
        let came_before = |other: &Pending| other.fault.since <= pending.fault.since;
        self.faults.insert(self.faults.partition_point(came_before), pending);
    }

    /// Takes out the fault that is to be answered next.
    pub(crate) fn next(&mut self) -> Option<Pending> {
        self.turn = self.turn.wrapping_add(1);
        let is_newest = self.faults.len() > CROWD && !self.turn.is_multiple_of(TURN);
        if is_newest { self.faults.pop_back() } else { self.faults.pop_front() }
    }

    /// Takes out those of a space.
    pub(crate) fn take_of(&mut self, space: SpaceId) -> Vec<Pending> {
        let (own, others) =
            self.faults.drain(..).partition(|fault: &Pending| fault.managed.id == space);
        self.faults = others;
        Vec::from(own)
    }

    /// Returns whether none waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use super::*;
    use crate::spaces::mailbox::Fault;

    /// Returns faults of two spaces in turn, with their pages numbered.
    fn faults(number: usize) -> impl Iterator<Item = Pending> {
        let (_, new) = crate::spaces::tests::spaces(1 << 20);
        let spaces = [1, 2].map(|id| Arc::new(new(id, 1)));
        (0..number).map(move |page| Pending {
            managed: Arc::clone(&spaces[page % 2]),
            fault: Fault { page, thread: 1, writes: false, free: false, since: Instant::now() },
        })
    }

    fn waiting(number: usize) -> Waiting {
        let mut waiting = Waiting::default();
        faults(number).for_each(|fault| waiting.add(fault));
        waiting
    }

    fn pages(waiting: &mut Waiting) -> Vec<usize> {
        std::iter::from_fn(|| waiting.next()).map(|next| next.fault.page).collect()
    }

    #[test]
    fn few_are_answered_in_their_order() {
        assert_eq!(pages(&mut waiting(CROWD)), (0..CROWD).collect::<Vec<_>>());
    }

    #[test]
    fn in_a_crowd_the_newest_goes_first_and_the_oldest_has_its_turn() {
        let all = CROWD + TURN as usize + 4;
        let order = pages(&mut waiting(all));
        let newest = (all - TURN as usize + 1..all).rev();
        let rest = 1..all - TURN as usize - 3;
        let then = (all - TURN as usize - 3..all - TURN as usize + 1).rev();
        assert_eq!(order, newest.chain([0]).chain(then).chain(rest).collect::<Vec<_>>());
    }

    #[test]
    fn one_that_found_no_room_again_has_its_place_again() {
        let mut waiting = waiting(4);
        let found = [waiting.next(), waiting.next()];
        found.into_iter().rev().flatten().for_each(|pending| waiting.add(pending));
        assert_eq!(pages(&mut waiting), [0, 1, 2, 3]);
    }

    #[test]
    fn those_of_a_space_are_taken_in_their_order() {
        let mut waiting = waiting(6);
        let own = waiting.take_of(SpaceId(2));
        assert_eq!(own.iter().map(|own| own.fault.page).collect::<Vec<_>>(), [1, 3, 5]);
        assert_eq!(pages(&mut waiting), [0, 2, 4]);
        assert!(waiting.is_empty());
    }
}
