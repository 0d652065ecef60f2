//! A model of processes that hold a guest's descriptor: every order of what they do, with kills in
//! between, and the same with one step broken, which must be caught.
//!
//! There is one guest. What a process does at once is a step; a process that is killed may have a
//! call under way that ends later, and its end is seen only then.

use crate::model::explore;

/// A step that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Twin {
    None,
    /// The front closes its copy when it has handed one on.
    HandedOver,
    /// A server accepts the guest itself, and tells the front then.
    ServerAccepts,
    /// A server is made as soon as the one before is killed.
    TooEarly,
    /// The front closes what the server that was lost had.
    GivenUp,
    /// A server says that a guest has ended when it ends itself.
    EndedWithMe,
}

/// Who holds the guest's descriptor, and who lives.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
struct World {
    guest_lives: bool,
    front_lives: bool,
    server_lives: bool,
    /// A call of a server that was killed goes on.
    lingers: bool,
    /// It has connected, and nobody has accepted it.
    is_queued: bool,
    front_holds: bool,
    /// The current server was sent a copy, which it has not received.
    is_coming: bool,
    is_sent: bool,
    server_holds: bool,
    /// The server has said that the guest ended, and the front has not heard.
    ended_said: bool,
    kills: u8,
}

impl World {
    const START: Self = Self {
        guest_lives: true,
        front_lives: true,
        server_lives: true,
        lingers: false,
        is_queued: true,
        front_holds: false,
        is_coming: false,
        is_sent: false,
        server_holds: false,
        ended_said: false,
        kills: 0,
    };

    /// Returns what may come next, kills apart.
    fn next(self, twin: Twin) -> Vec<Self> {
        let mut next = Vec::new();
        let mut may = |so: bool, then: Self| {
            if so {
                next.push(then);
            }
        };
        let accepts = twin == Twin::ServerAccepts;
        may(
            self.is_queued && self.front_lives && !accepts,
            Self { is_queued: false, front_holds: true, ..self },
        );
        may(
            self.is_queued && self.server_lives && accepts,
            Self { is_queued: false, server_holds: true, ..self },
        );
        may(
            accepts && self.server_holds && !self.front_holds && self.front_lives,
            Self { front_holds: true, is_sent: true, ..self },
        );
        let keeps = twin != Twin::HandedOver;
        may(
            self.front_lives && self.front_holds && self.server_lives && !self.is_sent,
            Self { is_coming: true, is_sent: true, front_holds: keeps, ..self },
        );
        may(
            self.server_lives && self.is_coming,
            Self { is_coming: false, server_holds: true, ..self },
        );
        may(self.guest_lives, Self { guest_lives: false, ..self });
        may(
            self.server_lives && self.server_holds && !self.guest_lives,
            Self { server_holds: false, ended_said: true, ..self },
        );
        may(
            self.front_lives && self.ended_said,
            Self { front_holds: false, ended_said: false, ..self },
        );
        // The last threads of a server that was killed end, and its descriptors are closed.
        may(
            self.lingers,
            Self { lingers: false, server_holds: self.server_lives && self.server_holds, ..self },
        );
        let is_seen = !self.server_lives && (!self.lingers || twin == Twin::TooEarly);
        let holds = self.front_holds && twin != Twin::GivenUp;
        may(
            self.front_lives && is_seen && !self.ended_said,
            Self { server_lives: true, front_holds: holds, is_sent: false, ..self },
        );
        next
    }

    /// Returns what becomes of it if somebody is killed.
    fn killed(self, twin: Twin) -> Vec<Self> {
        let mut next = Vec::new();
        if self.server_lives && self.kills < 3 {
            next.push(Self {
                server_lives: false,
                lingers: true,
                is_coming: false,
                ended_said: self.ended_said || (twin == Twin::EndedWithMe && self.server_holds),
                kills: self.kills + 1,
                ..self
            });
        }
        if self.front_lives && self.kills < 3 {
            next.push(Self {
                front_lives: false,
                front_holds: false,
                is_queued: false,
                kills: self.kills + 1,
                ..self
            });
        }
        next
    }

    /// Says what is wrong.
    fn wrong(self, twin: Twin) -> Option<&'static str> {
        let is_held = self.front_holds || self.server_holds || self.is_coming;
        let is_known = !self.is_queued;
        let one_lives = self.front_lives;
        if self.guest_lives && is_known && one_lives && !is_held {
            return Some("nobody holds it");
        }
        if self.server_lives && self.lingers {
            return Some("two servers at a time");
        }
        let is_over = self.next(twin).iter().all(|next| self.guest_lives && !next.guest_lives);
        if is_over && self.guest_lives && self.front_lives && !self.server_holds {
            return Some("nobody serves it, and nothing will happen");
        }
        let is_served = self.server_lives && self.server_holds;
        if is_over && !self.guest_lives && self.front_lives && (self.front_holds || is_served) {
            return Some("it is kept for ever");
        }
        None
    }
}

/// Returns what goes wrong in any order.
fn explored(twin: Twin) -> Result<usize, (&'static str, World)> {
    let next = |world: World| [world.next(twin), world.killed(twin)].concat();
    explore(World::START, next, |world| world.wrong(twin))
}

#[test]
fn a_guest_is_held_served_once_and_let_go_in_any_order() {
    let worlds = explored(Twin::None).expect("right");
    assert!(worlds > 100, "{worlds}");
}

#[test]
fn every_broken_hand_over_is_caught() {
    for twin in
        [Twin::HandedOver, Twin::ServerAccepts, Twin::TooEarly, Twin::GivenUp, Twin::EndedWithMe]
    {
        assert!(explored(twin).is_err(), "{twin:?} is not caught");
    }
}
