//! A memory side that writes down what it is told, and lets all go on.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crate::link::{Attached, Ending, Growth, Memory, Request, SpaceId, Ticket, Tracing as _};
use crate::trace::Handle;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Note {
    Begun(SpaceId),
    Attach(SpaceId),
    Refused(SpaceId, String),
    Grown(SpaceId),
    Gone(SpaceId),
}

#[derive(Default)]
pub(super) struct Witness {
    /// So many spaces are wanted as soon as there is an opportunity.
    pub appetite: AtomicUsize,
    /// This one is.
    pub wanted: Mutex<Option<SpaceId>>,
    /// Most threads that shared a space at a time.
    pub together: AtomicUsize,
    /// Threads of attached spaces that were seen to end, and of these such as had a list of robust
    /// mutexes, and none in it.
    pub ends: AtomicUsize,
    /// Same as above.
    pub robust: AtomicUsize,
    /// Forks with a message: where each child finds its number.
    pub forks: Mutex<Vec<Option<usize>>>,
    /// Spaces that stood still, and in which turn.
    pub stood: Mutex<Vec<(SpaceId, u64)>>,
    handle: OnceLock<Arc<Handle>>,
    ids: AtomicU64,
    notes: Mutex<Vec<Note>>,
    attached: Mutex<BTreeMap<SpaceId, Attached>>,
    begun: Mutex<BTreeMap<SpaceId, i32>>,
    tasks: Mutex<BTreeSet<(SpaceId, i32)>>,
}

impl Witness {
    pub(super) fn greedy() -> Self {
        Self { appetite: AtomicUsize::new(usize::MAX), ..Self::default() }
    }

    pub(super) fn set_handle(&self, handle: &Arc<Handle>) {
        assert!(self.handle.set(Arc::clone(handle)).is_ok(), "one run each");
    }

    fn begin(&self, pid: i32) -> SpaceId {
        let space = SpaceId(self.ids.fetch_add(1, Ordering::Relaxed) + 1);
        self.note(Note::Begun(space));
        self.tasks.lock().unwrap().insert((space, pid));
        if self.wants(space)
            && let Some(handle) = self.handle.get()
        {
            handle.attach(space);
        }
        space
    }

    fn go_on(&self, ticket: Ticket) {
        self.handle.get().expect("it runs").go_on(ticket);
    }

    fn note(&self, note: Note) {
        self.notes.lock().unwrap().push(note);
    }

    pub(super) fn notes(&self) -> Vec<Note> {
        self.notes.lock().unwrap().clone()
    }

    pub(super) fn attachments(&self) -> usize {
        self.notes().iter().filter(|note| matches!(note, Note::Attach(_))).count()
    }

    /// The threads of a space.
    pub(super) fn threads(&self, space: SpaceId) -> Vec<i32> {
        let tasks = self.tasks.lock().unwrap();
        tasks.iter().filter(|(of, _)| *of == space).map(|(_, thread)| *thread).collect()
    }

    /// The process of the program that was begun last, and its space.
    pub(super) fn latest(&self) -> Option<(i32, SpaceId)> {
        let begun = self.begun.lock().unwrap();
        begun.last_key_value().map(|(space, pid)| (*pid, *space))
    }

    /// Whatever was told fits together: spaces begin before anything happens in them, and end.
    pub(super) fn check(&self) {
        let mut living = BTreeSet::new();
        for note in self.notes() {
            match &note {
                Note::Begun(space) => assert!(living.insert(*space), "{space:?} is new"),
                Note::Attach(space) | Note::Refused(space, _) | Note::Grown(space) => {
                    assert!(living.contains(space), "{space:?} lives");
                }
                Note::Gone(space) => assert!(living.remove(space), "{space:?} lives"),
            }
        }
        assert!(living.is_empty(), "{living:?} did not end");
        assert!(self.attached.lock().unwrap().is_empty());
        assert!(self.tasks.lock().unwrap().is_empty(), "threads that did not end");
    }
}

impl Memory for Witness {
    fn exec(&self, pid: i32) -> SpaceId {
        let space = self.begin(pid);
        self.begun.lock().unwrap().insert(space, pid);
        space
    }

    fn found(&self, pid: i32) -> SpaceId {
        self.exec(pid)
    }

    fn forked(&self, _parent: SpaceId, pid: i32) -> SpaceId {
        self.begin(pid)
    }

    fn joined(&self, space: SpaceId, thread: i32) {
        let mut tasks = self.tasks.lock().unwrap();
        tasks.insert((space, thread));
        let together = tasks.iter().filter(|(of, _)| *of == space).count();
        self.together.fetch_max(together, Ordering::Relaxed);
    }

    fn ends(&self, _space: SpaceId, ending: &Ending<'_>, ticket: Ticket) -> bool {
        self.ends.fetch_add(1, Ordering::Relaxed);
        let empty = |head| (ending.word)(head) == Some(head);
        self.robust.fetch_add(usize::from(ending.robust.is_some_and(empty)), Ordering::Relaxed);
        // Every other one is held, as if a page had to come first.
        if ticket.thread % 2 == 0 {
            self.go_on(ticket);
        }
        ticket.thread % 2 != 0
    }

    fn left(&self, space: SpaceId, thread: i32) {
        self.tasks.lock().unwrap().remove(&(space, thread));
    }

    fn doubt(&self, _space: SpaceId) {}

    fn wants(&self, space: SpaceId) -> bool {
        self.attachments() < self.appetite.load(Ordering::Relaxed)
            || *self.wanted.lock().unwrap() == Some(space)
    }

    fn descriptor(&self, _space: SpaceId) -> io::Result<Option<OwnedFd>> {
        Ok(None)
    }

    fn is_attached(&self, space: SpaceId) -> bool {
        self.attached.lock().unwrap().contains_key(&space)
    }

    fn attach(&self, space: SpaceId, attached: Attached, ticket: Ticket) {
        self.note(Note::Attach(space));
        self.attached.lock().unwrap().insert(space, attached);
        self.go_on(ticket);
    }

    fn does_without(&self, space: SpaceId, reason: String) {
        self.cannot_attach(space, reason);
    }

    fn cannot_attach(&self, space: SpaceId, reason: String) {
        self.note(Note::Refused(space, reason));
    }

    fn request(&self, space: SpaceId, request: Request, ticket: Ticket) -> bool {
        if matches!(request, Request::Grown { .. }) {
            self.note(Note::Grown(space));
        }
        if let Request::Fork { number_at } = request {
            self.forks.lock().unwrap().push(number_at);
        }
        let now = matches!(request, Request::Level { .. });
        if !now {
            self.go_on(ticket);
        }
        now
    }

    fn fits(&self, _bytes: usize) -> bool {
        false
    }

    fn growth(&self) -> Growth {
        Growth { writable_bytes: 64 << 10, mapping_bytes: 64 << 10, all: true }
    }

    fn born(&self, _parent: SpaceId, child: SpaceId, attached: Attached, ticket: Ticket) {
        self.attach(child, attached, ticket);
    }

    fn unborn(&self, _parent: SpaceId) {}

    fn stands(&self, space: SpaceId, turn: u64) {
        self.stood.lock().unwrap().push((space, turn));
    }

    fn unattached(&self, space: SpaceId) {
        self.attached.lock().unwrap().remove(&space);
    }

    fn visited(&self, _space: SpaceId, _thread: i32) {}

    fn gone(&self, space: SpaceId) {
        self.attached.lock().unwrap().remove(&space);
        self.note(Note::Gone(space));
    }
}
