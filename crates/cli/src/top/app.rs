//! The state of the view: the runs and disks in their order, which is chosen, what they had
//! resident before; and the actions of keys.

use std::collections::{HashMap, VecDeque};
use std::mem::replace;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::watched::look::Look;
use crate::watched::machine::Machine;
use crate::watched::rows::{COLUMNS, Row, rows};
use crate::watched::seen::Seen;

/// Looks that are remembered: as many as the widest terminal shows.
const PAST: usize = 512;

/// The column by which rows are ordered at first: resident memory.
const ORDER: usize = 2;

/// Rows that a page key moves by.
const PAGE: isize = 10;

/// What the keys do, as the last line shows them.
pub(super) const HELP: &str =
    "q quit   arrows choose   Enter open   Esc close   s, S order   r reverse";

/// A key's action that the view itself cannot do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Action {
    Quit,
    /// Stop this process, as Ctrl-Z does.
    Suspend,
}

/// The view.
#[derive(Debug)]
pub(super) struct App {
    pub(super) now: Look,
    /// The look before.
    pub(super) before: Look,
    pub(super) rows: Vec<Row>,
    pub(super) machine: Machine,
    /// The first line that is shown of the chosen one, if it is opened.
    pub(super) opened: Option<u16>,
    /// The last event.
    pub(super) message: Option<String>,
    /// The column by which rows are ordered, and whether the least comes first.
    pub(super) order: usize,
    ascending: bool,
    chosen: Option<u32>,
    /// The bytes that each had resident at the last looks, the oldest first.
    past: HashMap<u32, VecDeque<u64>>,
}

impl Default for App {
    fn default() -> Self {
        Self {
            now: Look::default(),
            before: Look::default(),
            rows: Vec::new(),
            machine: Machine::default(),
            opened: None,
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
    pub(super) fn update(&mut self, now: Look, machine: Machine) {
        let place = self.place();
        self.machine = machine;
        self.before = replace(&mut self.now, now);
        self.rows = rows(&Seen::new(&self.now, &self.before));
        self.past.retain(|pid, _| self.rows.iter().any(|one| one.pid == *pid));
        for one in &self.rows {
            let past = self.past.entry(one.pid).or_default();
            if past.len() == PAST {
                past.pop_front();
            }
            past.push_back(one.resident);
        }
        self.sort();
        if self.chosen().is_none() {
            // The one that has taken the place of the one that is gone.
            self.choose(place.unwrap_or(0));
            if self.opened.take().is_some() {
                self.message = Some("it has ended".to_owned());
            }
        }
    }

    /// Puts the rows in order.
    fn sort(&mut self) {
        let column = &COLUMNS[self.order];
        self.rows.sort_by(|a, b| {
            let by = column.order(a).total_cmp(&column.order(b));
            let by = if self.ascending { by } else { by.reverse() };
            // So that equal ones stay where they are.
            by.then(a.pid.cmp(&b.pid))
        });
    }

    /// Returns the place of the chosen one.
    pub(super) fn place(&self) -> Option<usize> {
        let chosen = self.chosen?;
        self.rows.iter().position(|one| one.pid == chosen)
    }

    /// Returns the chosen one.
    pub(super) fn chosen(&self) -> Option<&Row> {
        self.place().map(|place| &self.rows[place])
    }

    /// Chooses the one at a place, or the last.
    pub(super) fn choose(&mut self, place: usize) {
        let place = place.min(self.rows.len().saturating_sub(1));
        self.chosen = self.rows.get(place).map(|one| one.pid);
    }

    /// Returns the bytes that the chosen one had resident.
    pub(super) fn past(&self) -> Option<&VecDeque<u64>> {
        self.past.get(&self.chosen?)
    }

    /// Carries out a key's action, and returns the one that is to be done outside.
    pub(super) fn key(&mut self, key: KeyEvent) -> Option<Action> {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Some(Action::Quit),
                KeyCode::Char('z') => Some(Action::Suspend),
                _ => None,
            };
        }
        self.message = None;
        match key.code {
            KeyCode::Char('q') => return Some(Action::Quit),
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => self.opened = None,
            KeyCode::Up | KeyCode::Char('k') => self.move_by(-1),
            KeyCode::Down | KeyCode::Char('j') => self.move_by(1),
            KeyCode::PageUp => self.move_by(-PAGE),
            KeyCode::PageDown => self.move_by(PAGE),
            KeyCode::Home => self.move_by(isize::MIN),
            KeyCode::End => self.move_by(isize::MAX),
            KeyCode::Char('s') => self.order_by(1),
            KeyCode::Char('S') => self.order_by(COLUMNS.len() - 1),
            KeyCode::Char('r') => {
                self.ascending = !self.ascending;
                self.sort();
            }
            KeyCode::Enter | KeyCode::Right => self.opened = self.chosen().map(|_| 0),
            _ => {}
        }
        None
    }

    /// Moves to another row, or to another line of the one that is opened.
    fn move_by(&mut self, rows: isize) {
        match &mut self.opened {
            Some(line) => {
                let moved = usize::from(*line).saturating_add_signed(rows);
                *line = u16::try_from(moved).unwrap_or(u16::MAX);
            }
            None => self.choose(self.place().unwrap_or(0).saturating_add_signed(rows)),
        }
    }

    fn order_by(&mut self, columns: usize) {
        self.order = (self.order + columns) % COLUMNS.len();
        self.sort();
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Instant;

    use zfold_run::Figures;

    use super::*;
    use crate::control::state::RunState;
    use crate::disk::report::{DiskReport, Report};
    use crate::watched::look::Answer;

    /// Returns a look at runs of these many MiB, and at a disk.
    pub(in crate::top) fn look(runs: &[(u32, u64)]) -> Look {
        let at = Instant::now();
        let run = |&(pid, mib): &(u32, u64)| {
            let figures = Figures {
                limit_bytes: 64 << 20,
                resident_bytes: mib << 20,
                stored_pages_bytes: 128 << 20,
                stored_bytes: 32 << 20,
                ..Figures::default()
            };
            let command = format!("program {pid}");
            Answer { at, what: RunState { pid, command, figures, ..RunState::default() } }
        };
        let mut disk = DiskReport { name: "a".to_owned(), ..DiskReport::default() };
        disk.held.mem_used_total = 1 << 20;
        let server = Report { pid: 3, disks: [disk], ..Report::default() };
        let servers = vec![Answer { at, what: server }];
        Look { runs: runs.iter().map(run).collect(), servers, guests: Vec::new() }
    }

    fn pids(app: &App) -> Vec<u32> {
        app.rows.iter().map(|one| one.pid).collect()
    }

    fn chosen(app: &App) -> Option<u32> {
        app.chosen().map(|one| one.pid)
    }

    #[test]
    fn the_chosen_one_stays_chosen_wherever_it_moves() {
        let mut app = App::default();
        app.update(look(&[(1, 10), (2, 30)]), Machine::default());
        assert_eq!((pids(&app), chosen(&app)), (vec![2, 1, 3], Some(2)));
        app.update(look(&[(1, 40), (2, 30)]), Machine::default());
        assert_eq!((pids(&app), app.place()), (vec![1, 2, 3], Some(1)));
        app.opened = Some(0);
        app.update(look(&[(1, 40)]), Machine::default());
        assert_eq!((chosen(&app), app.opened), (Some(3), None));
        assert_eq!(app.message.as_deref(), Some("it has ended"));
        app.update(Look::default(), Machine::default());
        assert!(app.chosen().is_none() && app.past().is_none());
    }

    #[test]
    fn keys_choose_order_open_and_leave() {
        let mut app = App::default();
        app.update(look(&[(1, 10), (2, 30)]), Machine::default());
        let mut press = |code, modifiers| {
            let action = app.key(KeyEvent::new(code, modifiers));
            (action, chosen(&app), app.opened, pids(&app)[0], COLUMNS[app.order].title)
        };
        let none = KeyModifiers::NONE;
        for (code, expected) in [
            (KeyCode::Down, (None, Some(1), None, 2, "RES")),
            (KeyCode::End, (None, Some(3), None, 2, "RES")),
            (KeyCode::PageUp, (None, Some(2), None, 2, "RES")),
            (KeyCode::Enter, (None, Some(2), Some(0), 2, "RES")),
            (KeyCode::Down, (None, Some(2), Some(1), 2, "RES")),
            (KeyCode::Home, (None, Some(2), Some(0), 2, "RES")),
            (KeyCode::Esc, (None, Some(2), None, 2, "RES")),
            (KeyCode::Char('r'), (None, Some(2), None, 3, "RES")),
            (KeyCode::Char('S'), (None, Some(2), None, 1, "LIMIT")),
            (KeyCode::Char('S'), (None, Some(2), None, 1, "PID")),
            (KeyCode::Char('q'), (Some(Action::Quit), Some(2), None, 1, "PID")),
        ] {
            assert_eq!(press(code, none), expected, "{code:?}");
        }
        let ended = press(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(ended.0, Some(Action::Quit));
    }
}
