//! The places of a server for connections, and which connection gives way when none is free.
//!
//! - P1: places of clients, those whose handshake is done, are `max_connections`. In addition, an
//!   eighth as many, at least eight, are for handshakes alone, so there is always one for a
//!   newcomer. Handshakes may take the places of clients that are not there.
//! - P2: where all places are taken, the oldest handshake of the address that has most of them
//!   ends. So one address can keep out only itself, and waiting keeps no client out. A burst of
//!   connections from one address is no harm while there is room, so no number is refused.
//! - P3: where all places of clients are taken, the client gives way that has been idle longest, if
//!   any has been for `idle_after`. Of another address than the newcomer's it is only if that has
//!   more places than the newcomer's had. A client is idle while nothing comes from it or is sent
//!   to it, and the device does nothing for it. One on this machine never gives way: the mode of
//!   the file admits only trusted users, and a silent client may hold a mounted file system.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::options::NbdOptions;
use super::socket::{Peer, Socket};

/// Places for handshakes alone, as a part of those of clients, and at least.
const HANDSHAKES_PART: usize = 8;
const HANDSHAKES_MIN: usize = 8;

/// All connections of a server.
#[derive(Debug)]
pub(super) struct Places {
    /// Of clients.
    max: usize,
    idle_after: Duration,
    last: u64,
    members: HashMap<u64, Member>,
}

#[derive(Debug)]
struct Member {
    socket: Arc<Socket>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Handshake,
    Transmission,
    /// It gave way; its threads are about to notice.
    Leaving,
}

impl Places {
    pub(super) fn new(options: &NbdOptions) -> Self {
        let NbdOptions { max_connections: max, idle_after, .. } = *options;
        Self { max, idle_after, last: 0, members: HashMap::new() }
    }

    /// Returns how many connections there are.
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// Gives a new connection a place, and returns its number; the larger, the later it came.
    /// `None` where those that gave way are slow to leave: each has a thread.
    pub(super) fn enter(&mut self, socket: &Arc<Socket>) -> Option<u64> {
        let all = self.max + (self.max / HANDSHAKES_PART).max(HANDSHAKES_MIN);
        if self.members.len() >= 2 * all {
            return None;
        }
        let present = self.members.values().filter(|member| member.stage != Stage::Leaving).count();
        if present >= all {
            self.end_a_handshake();
        }
        self.last += 1;
        let member = Member { socket: Arc::clone(socket), stage: Stage::Handshake };
        self.members.insert(self.last, member);
        Some(self.last)
    }

    /// Makes a connection a client's (P3). Returns whether there was a place, and whether another
    /// one gave way.
    pub(super) fn become_client(&mut self, id: u64) -> (bool, bool) {
        let Member { socket, stage } = &self.members[&id];
        if *stage == Stage::Leaving {
            return (false, false);
        }
        let peer = socket.peer();
        let room = self.in_stage(Stage::Transmission).count() < self.max;
        let gave_way = !room && self.end_an_idle_client(peer);
        if room || gave_way {
            let member = self.members.get_mut(&id).expect("members have places");
            member.stage = Stage::Transmission;
        }
        (room || gave_way, gave_way)
    }

    /// Gives a place back.
    pub(super) fn leave(&mut self, id: u64) {
        let member = self.members.remove(&id);
        member.expect("a connection leaves once").socket.close();
    }

    /// Lets clients have the answers to what they have sent, and ends all others.
    pub(super) fn finish(&self) {
        for member in self.members.values() {
            match member.stage {
                Stage::Transmission => member.socket.close_reading(),
                Stage::Handshake | Stage::Leaving => member.socket.close(),
            }
        }
    }

    /// Ends all connections at once.
    pub(super) fn close(&self) {
        self.members.values().for_each(|member| member.socket.close());
    }

    fn in_stage(&self, stage: Stage) -> impl Iterator<Item = (u64, &Socket)> {
        let members = self.members.iter().filter(move |(_, member)| member.stage == stage);
        members.map(|(&id, member)| (id, &*member.socket))
    }

    fn counts(&self, stage: Stage) -> HashMap<Peer, usize> {
        let mut counts = HashMap::new();
        for (_, socket) in self.in_stage(stage) {
            *counts.entry(socket.peer()).or_default() += 1;
        }
        counts
    }

    fn end_a_handshake(&mut self) {
        let counts = self.counts(Stage::Handshake);
        let most = counts.values().max();
        let of_most =
            self.in_stage(Stage::Handshake).filter(|(_, s)| counts.get(&s.peer()) == most);
        if let Some(oldest) = of_most.map(|(id, _)| id).min() {
            self.end(oldest);
        }
    }

    fn end_an_idle_client(&mut self, newcomer: Peer) -> bool {
        let counts = self.counts(Stage::Transmission);
        let count = |peer| counts.get(&peer).copied().unwrap_or(0);
        let longest = self
            .in_stage(Stage::Transmission)
            .filter(|(_, s)| s.peer() != Peer::Local)
            .filter(|(_, s)| s.peer() == newcomer || count(s.peer()) > count(newcomer))
            .filter_map(|(id, socket)| Some((socket.activity().idle()?, id)))
            .filter(|&(idle, _)| idle >= self.idle_after)
            .max();
        let Some((_, id)) = longest else { return false };
        self.end(id);
        true
    }

    fn end(&mut self, id: u64) {
        let member = self.members.get_mut(&id).expect("members have places");
        member.stage = Stage::Leaving;
        member.socket.close();
    }
}
