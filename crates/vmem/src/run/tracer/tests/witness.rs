//! A memory side that writes down what it is told.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::run::memory::{Attached, Change, Follow, Memory, SpaceId};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Note {
    Exec(SpaceId),
    Before(SpaceId, Change),
    After(SpaceId, Change, i64),
    Attach(SpaceId),
    Refused(SpaceId, String),
    Fork(SpaceId),
    Forked(SpaceId, Option<SpaceId>),
    Gone(SpaceId),
}

#[derive(Default)]
pub(super) struct Witness {
    /// So many spaces are wanted as soon as there is an opportunity.
    pub appetite: AtomicUsize,
    /// This one is.
    pub wanted: Mutex<Option<SpaceId>>,
    /// Changes are not followed to their end.
    pub lets_go: AtomicBool,
    notes: Mutex<Vec<Note>>,
    attached: Mutex<HashMap<SpaceId, Attached>>,
    begun: Mutex<HashMap<i32, SpaceId>>,
}

impl Witness {
    pub(super) fn greedy() -> Self {
        Self { appetite: AtomicUsize::new(usize::MAX), ..Self::default() }
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

    /// The process of the program that was begun last, and its space.
    pub(super) fn latest(&self) -> Option<(i32, SpaceId)> {
        let begun = self.begun.lock().unwrap();
        begun.iter().map(|(pid, space)| (*pid, *space)).max_by_key(|(_, space)| *space)
    }

    /// Does something with what was attached to a space.
    pub(super) fn with<T>(
        &self,
        space: SpaceId,
        act: impl FnOnce(&mut Attached) -> T,
    ) -> Option<T> {
        self.attached.lock().unwrap().get_mut(&space).map(act)
    }

    /// Whatever was told fits together: spaces begin before anything happens in them and end, what
    /// was announced was reported.
    pub(super) fn check(&self) {
        let mut living: HashMap<SpaceId, Vec<Note>> = HashMap::new();
        for note in self.notes() {
            match &note {
                Note::Exec(space) => {
                    assert!(living.insert(*space, Vec::new()).is_none(), "{space:?} is new");
                }
                Note::Before(space, _) | Note::Fork(space) => {
                    living.get_mut(space).expect("it lives").push(note);
                }
                Note::After(space, change, _) => {
                    let open = living.get_mut(space).expect("it lives");
                    let begun = Note::Before(*space, change.clone());
                    let found = open.iter().position(|note| *note == begun);
                    open.swap_remove(found.expect("it was announced"));
                }
                Note::Forked(space, child) => {
                    let open = living.get_mut(space).expect("it lives");
                    let found = open.iter().position(|note| *note == Note::Fork(*space));
                    open.swap_remove(found.expect("it was announced"));
                    if let Some(child) = child {
                        assert!(living.insert(*child, Vec::new()).is_none(), "{child:?} is new");
                    }
                }
                Note::Attach(space) | Note::Refused(space, _) => {
                    assert!(living.contains_key(space), "{space:?} lives");
                }
                Note::Gone(space) => {
                    let open = living.remove(space).expect("it lives");
                    let followed = !self.lets_go.load(Ordering::Relaxed);
                    assert!(!followed || open.is_empty(), "{open:?} had no end");
                }
            }
        }
        assert!(living.is_empty(), "{living:?} did not end");
        assert!(self.attached.lock().unwrap().is_empty());
    }
}

impl Memory for Witness {
    fn exec(&self, space: SpaceId, pid: i32) {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("maps");
        assert!(maps.contains("[stack]"), "what exec mapped can be seen");
        self.note(Note::Exec(space));
        self.begun.lock().unwrap().insert(pid, space);
    }

    fn before(&self, space: SpaceId, change: &Change) -> Follow {
        self.note(Note::Before(space, change.clone()));
        if self.lets_go.load(Ordering::Relaxed) { Follow::Go } else { Follow::Return }
    }

    fn after(&self, space: SpaceId, change: &Change, result: i64) {
        self.note(Note::After(space, change.clone(), result));
    }

    fn wants(&self, space: SpaceId) -> bool {
        self.attachments() < self.appetite.load(Ordering::Relaxed)
            || *self.wanted.lock().unwrap() == Some(space)
    }

    fn attach(&self, space: SpaceId, attached: Attached) {
        self.note(Note::Attach(space));
        self.attached.lock().unwrap().insert(space, attached);
    }

    fn cannot_attach(&self, space: SpaceId, reason: String) {
        self.note(Note::Refused(space, reason));
    }

    fn fork(&self, space: SpaceId) -> bool {
        self.note(Note::Fork(space));
        self.attached.lock().unwrap().contains_key(&space)
    }

    fn forked(&self, parent: SpaceId, child: Option<(SpaceId, i32, Option<Attached>)>) {
        self.note(Note::Forked(parent, child.as_ref().map(|(space, ..)| *space)));
        if let Some((space, _, Some(attached))) = child {
            self.attach(space, attached);
        }
    }

    fn gone(&self, space: SpaceId) {
        self.attached.lock().unwrap().remove(&space);
        self.note(Note::Gone(space));
    }
}
