//! The state of the view: the runs and disks in their order, which is chosen, what they were
//! before.

use std::collections::{HashMap, VecDeque};

use crate::watched::columns::COLUMNS;
use crate::watched::machine::Machine;
use crate::watched::subject::{Key, Subject};

/// Looks that are remembered: as many as the widest terminal shows.
const PAST: usize = 512;

/// The column by which rows are ordered at first: resident memory.
const ORDER: usize = 2;

/// The page on the screen.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Mode {
    /// All of them.
    #[default]
    List,
    /// The chosen one.
    Detail,
    /// The mode of the keys.
    Help,
}

/// What one was at the last looks, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Past {
    pub(super) resident: VecDeque<u64>,
    /// In hundredths.
    pub(super) ratio: VecDeque<u64>,
    /// Faults, or requests of a disk, each second.
    pub(super) work: VecDeque<u64>,
}

/// The view.
#[derive(Debug)]
pub(super) struct App {
    pub(super) subjects: Vec<Subject>,
    pub(super) machine: Machine,
    pub(super) mode: Mode,
    /// The limit that is being typed.
    pub(super) typed: Option<String>,
    /// The last event.
    pub(super) message: Option<String>,
    /// The column by which rows are ordered, and whether the least comes first.
    pub(super) order: usize,
    pub(super) ascending: bool,
    chosen: Option<Key>,
    past: HashMap<Key, Past>,
}

impl Default for App {
    fn default() -> Self {
        Self {
            subjects: Vec::new(),
            machine: Machine::default(),
            mode: Mode::List,
            typed: None,
            message: None,
            order: ORDER,
            ascending: false,
            chosen: None,
            past: HashMap::new(),
        }
    }
}

impl App {
    /// Takes over what was found at a look.
    pub(super) fn update(&mut self, subjects: Vec<Subject>, machine: Machine) {
        let place = self.place();
        self.machine = machine;
        self.past.retain(|key, _| subjects.iter().any(|one| one.key() == *key));
        for one in &subjects {
            let past = self.past.entry(one.key()).or_default();
            add(&mut past.resident, one.resident());
            add(&mut past.ratio, (one.ratio().unwrap_or(0.0) * 100.0) as u64);
            add(&mut past.work, one.faults().or(one.requests()).unwrap_or(0.0) as u64);
        }
        self.subjects = subjects;
        self.sort();
        if self.chosen().is_none() {
            // The one that has taken the place of the one that is gone.
            self.choose(place.unwrap_or(0));
            if self.mode == Mode::Detail || self.typed.is_some() {
                (self.mode, self.typed) = (Mode::List, None);
                self.message = Some("it has ended".to_owned());
            }
        }
    }

    /// Puts the rows in order.
    pub(super) fn sort(&mut self) {
        let column = &COLUMNS[self.order];
        self.subjects.sort_by(|a, b| {
            let by = column.order(a).total_cmp(&column.order(b));
            let by = if self.ascending { by } else { by.reverse() };
            // So that equal ones stay where they are.
            by.then(a.pid().cmp(&b.pid())).then_with(|| a.command().cmp(&b.command()))
        });
    }

    /// Returns the place of the chosen one.
    pub(super) fn place(&self) -> Option<usize> {
        let chosen = self.chosen.as_ref()?;
        self.subjects.iter().position(|one| one.key() == *chosen)
    }

    /// Returns the chosen one.
    pub(super) fn chosen(&self) -> Option<&Subject> {
        self.place().map(|place| &self.subjects[place])
    }

    /// Chooses the one at a place, or the last.
    pub(super) fn choose(&mut self, place: usize) {
        let place = place.min(self.subjects.len().saturating_sub(1));
        self.chosen = self.subjects.get(place).map(Subject::key);
    }

    /// Returns what the chosen one was.
    pub(super) fn past(&self) -> Option<&Past> {
        self.past.get(self.chosen.as_ref()?)
    }
}

fn add(past: &mut VecDeque<u64>, value: u64) {
    if past.len() == PAST {
        past.pop_front();
    }
    past.push_back(value);
}

#[cfg(test)]
pub(super) mod tests {
    use zfold_run::Figures;

    use super::*;
    use crate::control::state::RunState;
    use crate::watched::rates::{Disk, Rates, Run};

    /// Returns a run of this many MiB.
    pub(in crate::top) fn run(pid: u32, mib: u64) -> Subject {
        let state = RunState {
            pid,
            command: format!("program {pid}"),
            figures: Figures {
                limit_bytes: 64 << 20,
                resident_bytes: mib << 20,
                stored_pages_bytes: 128 << 20,
                stored_bytes: 32 << 20,
                ..Figures::default()
            },
            ..RunState::default()
        };
        Subject::Run(Box::new(Run {
            state,
            ratio: Some(4.0),
            rates: Rates::new(Figures { faults_total: 1234, ..Figures::default() }, 1.0),
            recent_fault_p50_ns: Some(6_050),
            recent_fault_p99_ns: Some(59_900),
            ..Run::default()
        }))
    }

    pub(in crate::top) fn disk(pid: u32) -> Subject {
        let name = "a".to_owned();
        Subject::Disk(Box::new(Disk { pid, name, resident_bytes: 1 << 20, ..Disk::default() }))
    }

    fn pids(app: &App) -> Vec<u32> {
        app.subjects.iter().map(Subject::pid).collect()
    }

    #[test]
    fn the_chosen_one_stays_chosen_wherever_it_moves() {
        let mut app = App::default();
        app.update(vec![run(1, 10), run(2, 30), disk(3)], Machine::default());
        assert_eq!(pids(&app), [2, 1, 3]);
        assert_eq!(app.chosen().map(Subject::pid), Some(2));
        app.update(vec![run(1, 40), run(2, 30), disk(3)], Machine::default());
        assert_eq!((pids(&app), app.place()), (vec![1, 2, 3], Some(1)));
        app.mode = Mode::Detail;
        app.update(vec![run(1, 40), disk(3)], Machine::default());
        assert_eq!((app.chosen().map(Subject::pid), &app.mode), (Some(3), &Mode::List));
        assert_eq!(app.message.as_deref(), Some("it has ended"));
        app.update(Vec::new(), Machine::default());
        assert!(app.chosen().is_none() && app.past().is_none());
    }
}
