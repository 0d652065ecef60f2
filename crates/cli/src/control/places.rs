//! The places of a service, and which client gives way when none is free.
//!
//! - P1: a place belongs to a client that is there; one that gave way keeps a thread for the moment
//!   until that notices. While there are twice as many threads as places, nobody is let in.
//! - P2: a client *waits* until a whole request of it has come, and again while it takes the
//!   answer. Where all places are taken, one that waits gives way to a newcomer: one that has never
//!   asked before one that has, then the one that has waited longest. So silence keeps nobody out.
//! - P3: a client whose request is being carried out does not give way, and a request of one that
//!   gave way is not carried out.

use std::collections::HashMap;

/// All clients of a service, which is to hang up on a client by its `S`.
#[derive(Debug)]
pub(super) struct Places<S> {
    max: usize,
    /// Counts what happens, to tell what was before what.
    turn: u64,
    members: HashMap<u64, Member<S>>,
}

#[derive(Debug)]
struct Member<S> {
    socket: S,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It waits, since this turn.
    Waiting { has_asked: bool, since: u64 },
    /// Its request is carried out.
    Served,
    /// It gave way.
    Leaving,
}

/// A newcomer's number, and who is to be hung up on for its sake.
type Entered<S> = (u64, Option<S>);

impl<S: Clone> Places<S> {
    /// Returns `max` free places.
    pub(super) fn new(max: usize) -> Self {
        Self { max, turn: 0, members: HashMap::new() }
    }

    /// Returns whether those that gave way have to leave before anybody else is let in (P1).
    pub(super) fn is_crowded(&self) -> bool {
        self.members.len() >= 2 * self.max
    }

    /// Gives a newcomer a place; `None` if all clients are being served.
    pub(super) fn enter(&mut self, socket: S) -> Option<Entered<S>> {
        let present = self.members.values().filter(|member| member.stage != Stage::Leaving);
        let has_room = present.count() < self.max;
        let gave_way = if has_room { None } else { Some(self.end_one()?) };
        self.turn += 1;
        let stage = Stage::Waiting { has_asked: false, since: self.turn };
        self.members.insert(self.turn, Member { socket, stage });
        Some((self.turn, gave_way))
    }

    /// A whole request has come; returns whether it may be carried out (P3).
    pub(super) fn serve(&mut self, id: u64) -> bool {
        let stage = &mut self.members.get_mut(&id).expect("it has not left").stage;
        let may = *stage != Stage::Leaving;
        if may {
            *stage = Stage::Served;
        }
        may
    }

    /// A request was carried out: the client has to take the answer, and to ask again.
    pub(super) fn wait(&mut self, id: u64) {
        let stage = &mut self.members.get_mut(&id).expect("it has not left").stage;
        if *stage == Stage::Served {
            self.turn += 1;
            *stage = Stage::Waiting { has_asked: true, since: self.turn };
        }
    }

    /// A client has left.
    pub(super) fn leave(&mut self, id: u64) {
        self.members.remove(&id);
    }

    /// Has a client give way (P2).
    fn end_one(&mut self) -> Option<S> {
        let waits = |member: &Member<S>| match member.stage {
            Stage::Waiting { has_asked, since } => Some((has_asked, since)),
            Stage::Served | Stage::Leaving => None,
        };
        let waiting = self.members.values_mut().filter(|member| waits(member).is_some());
        let member = waiting.min_by_key(|member| waits(member))?;
        member.stage = Stage::Leaving;
        Some(member.socket.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places that are all taken by clients of these names, and their numbers.
    fn taken<const N: usize>(names: [char; N]) -> (Places<char>, [u64; N]) {
        let mut places = Places::new(N);
        let ids = names.map(|name| {
            let (id, gave_way) = places.enter(name).expect("a place");
            assert_eq!(gave_way, None);
            id
        });
        (places, ids)
    }

    #[test]
    fn the_client_that_has_said_nothing_for_longest_gives_way() {
        let (mut places, [a, ..]) = taken(['a', 'b', 'c']);
        assert!(places.serve(a));
        places.wait(a);
        // The first has asked, so that it is the last of these.
        let gave_way = ['d', 'e', 'f'].map(|name| {
            let gave_way = places.enter(name).and_then(|entered| entered.1);
            // As if its thread had left at once.
            places.members.retain(|_, member| member.stage != Stage::Leaving);
            gave_way
        });
        assert_eq!(gave_way, [Some('b'), Some('c'), Some('d')]);
    }

    #[test]
    fn clients_that_asked_once_keep_nobody_out() {
        let (mut places, [a, b]) = taken(['a', 'b']);
        for id in [a, b, a] {
            assert!(places.serve(id));
            places.wait(id);
        }
        assert_eq!(places.enter('c').expect("a place").1, Some('b'));
    }

    #[test]
    fn a_client_that_is_served_keeps_its_place_and_one_that_gave_way_is_not_served() {
        let (mut places, [a, b]) = taken(['a', 'b']);
        assert!(places.serve(a));
        assert_eq!(places.enter('c').expect("a place").1, Some('b'));
        assert!(!places.serve(b));
        places.wait(b);
        let (c, _) = places.members.iter().find(|(_, member)| member.socket == 'c').expect("c");
        let c = *c;
        assert!(places.serve(c));
        assert!(places.enter('d').is_none(), "both are served");
        places.leave(a);
        assert_eq!(places.enter('d').expect("a place").1, None);
    }

    #[test]
    fn threads_are_at_most_twice_the_places() {
        let (mut places, [a, _]) = taken(['a', 'b']);
        assert!(places.enter('c').is_some() && !places.is_crowded());
        assert!(places.enter('d').is_some() && places.is_crowded(), "a and b are about to leave");
        places.leave(a);
        assert!(!places.is_crowded());
    }
}
