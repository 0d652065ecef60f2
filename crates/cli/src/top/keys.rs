//! The actions of keys.

use std::path::PathBuf;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use zfold_run::LIMIT_MIN;

use super::app::{App, Mode};
use crate::settings::Setting;
use crate::shared::size::{format_size, parse_size};
use crate::watched::columns::COLUMNS;
use crate::watched::subject::Subject;

/// Keys and what they do, as help shows them.
pub(super) const HELP: [(&str, &str); 9] = [
    ("up, down", "choose a run, a disk or a guest server"),
    ("Enter", "open it; Esc closes it"),
    ("s, S", "order by the next column, the one before"),
    ("r", "reverse the order"),
    ("l", "change its limit"),
    ("o", "evict all memory of a run that can be compressed"),
    ("p", "pause a run, or let it continue"),
    ("?", "this help"),
    ("q", "quit"),
];

/// Rows that a page key moves by.
const PAGE: usize = 10;

/// A key's action that the view itself cannot do.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    Quit,
    /// Stop this process, as Ctrl-Z does.
    Suspend,
    Ask(Ask),
}

/// A request to a run or a disk.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ask {
    pub(super) socket: PathBuf,
    pub(super) disk: Option<String>,
    pub(super) command: &'static str,
    pub(super) words: Vec<String>,
    /// What it is, for people.
    pub(super) what: String,
}

impl App {
    /// Carries out a key's action, and returns the part that is to be done outside.
    pub(super) fn key(&mut self, key: KeyEvent) -> Option<Action> {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Some(Action::Quit),
                KeyCode::Char('z') => Some(Action::Suspend),
                _ => None,
            };
        }
        if self.typed.is_some() {
            return self.type_limit(key.code);
        }
        self.message = None;
        match (key.code, &self.mode) {
            (KeyCode::Char('q'), _) => return Some(Action::Quit),
            (KeyCode::Esc | KeyCode::Backspace | KeyCode::Left, _)
            | (KeyCode::Char('?' | 'h'), Mode::Help) => self.mode = Mode::List,
            (KeyCode::Char('?' | 'h') | KeyCode::F(1), _) => self.mode = Mode::Help,
            (KeyCode::Up | KeyCode::Char('k'), _) => self.move_by(-1),
            (KeyCode::Down | KeyCode::Char('j'), _) => self.move_by(1),
            (KeyCode::PageUp, _) => self.move_by(-(PAGE as isize)),
            (KeyCode::PageDown, _) => self.move_by(PAGE as isize),
            (KeyCode::Home, _) => self.choose(0),
            (KeyCode::End, _) => self.choose(usize::MAX),
            (KeyCode::Char('s'), _) => self.order_by(1),
            (KeyCode::Char('S'), _) => self.order_by(COLUMNS.len() - 1),
            (KeyCode::Char('r'), _) => {
                self.ascending = !self.ascending;
                self.sort();
            }
            _ if self.chosen().is_none() => {}
            (KeyCode::Enter | KeyCode::Right, _) => self.mode = Mode::Detail,
            (KeyCode::Char('l'), _) => self.typed = Some(String::new()),
            (KeyCode::Char('o'), _) => return self.ask_run("page-out", "page out"),
            (KeyCode::Char('p'), _) => {
                let is_paused =
                    self.chosen().and_then(|one| one.of_run(|run| Some(run.state.paused)));
                let command = if is_paused == Some(true) { "resume" } else { "pause" };
                return self.ask_run(command, command);
            }
            _ => {}
        }
        None
    }

    fn move_by(&mut self, rows: isize) {
        self.choose(self.place().unwrap_or(0).saturating_add_signed(rows));
    }

    fn order_by(&mut self, columns: usize) {
        self.order = (self.order + columns) % COLUMNS.len();
        self.sort();
    }

    fn type_limit(&mut self, code: KeyCode) -> Option<Action> {
        let typed = self.typed.as_mut()?;
        match code {
            KeyCode::Char(c) if typed.len() < 20 => typed.push(c),
            KeyCode::Backspace => {
                typed.pop();
            }
            KeyCode::Esc => self.typed = None,
            KeyCode::Enter => {
                let size = typed.trim().to_owned();
                match self.set_limit(&size) {
                    Ok(ask) => {
                        self.typed = None;
                        self.message = Some(format!("{} ...", ask.what));
                        return Some(Action::Ask(ask));
                    }
                    // The typed text stays, to be corrected.
                    Err(why) => self.message = Some(why),
                }
            }
            _ => {}
        }
        None
    }

    /// Returns the request for another limit of the chosen one.
    ///
    /// # Errors
    /// What is wrong with it.
    fn set_limit(&self, size: &str) -> Result<Ask, String> {
        let chosen = self.chosen().ok_or("it has ended")?;
        let word = match chosen {
            Subject::Run(_) => {
                if parse_size(size)? < LIMIT_MIN {
                    return Err(format!("give {} or more", format_size(LIMIT_MIN)));
                }
                format!("limit={size}")
            }
            Subject::Disk(_) => {
                let word = format!("mem_limit={size}");
                word.parse::<Setting>()?;
                word
            }
            Subject::Guests(_) => {
                return Err("a guest server keeps the --limit it started with".to_owned());
            }
        };
        Ok(ask(chosen, "set", vec![word], format!("limit {size} for {}", chosen.pid())))
    }

    /// Asks for what only runs can do.
    fn ask_run(&mut self, command: &'static str, what: &str) -> Option<Action> {
        let chosen = self.chosen()?;
        let others = match chosen {
            Subject::Run(_) => None,
            Subject::Disk(_) => Some("disks"),
            Subject::Guests(_) => Some("guest servers"),
        };
        if let Some(others) = others {
            self.message =
                Some(format!("{others} have no command {command}; see zfold ctl --help"));
            return None;
        }
        let ask = ask(chosen, command, Vec::new(), format!("{what} {}", chosen.pid()));
        self.message = Some(format!("{} ...", ask.what));
        Some(Action::Ask(ask))
    }
}

fn ask(of: &Subject, command: &'static str, words: Vec<String>, what: String) -> Ask {
    Ask { socket: of.socket().to_owned(), disk: of.key().disk, command, words, what }
}

#[cfg(test)]
mod tests {
    use super::super::app::tests::{disk, run};
    use super::*;
    use crate::watched::machine::Machine;

    fn app() -> App {
        let mut app = App::default();
        app.update(vec![run(1, 10), run(2, 30), disk(3)], Machine::default());
        app
    }

    fn press(app: &mut App, code: KeyCode) -> Option<Action> {
        app.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn types(app: &mut App, text: &str) -> Option<Action> {
        text.chars().for_each(|c| assert_eq!(press(app, KeyCode::Char(c)), None));
        press(app, KeyCode::Enter)
    }

    #[test]
    fn keys_choose_order_open_and_leave() {
        let mut app = app();
        assert_eq!(app.place(), Some(0));
        press(&mut app, KeyCode::Down);
        assert_eq!(app.chosen().map(Subject::pid), Some(1));
        press(&mut app, KeyCode::End);
        assert_eq!(app.chosen().map(Subject::pid), Some(3));
        press(&mut app, KeyCode::PageUp);
        assert_eq!(app.place(), Some(0));
        press(&mut app, KeyCode::Enter);
        assert_eq!(app.mode, Mode::Detail);
        press(&mut app, KeyCode::Esc);
        press(&mut app, KeyCode::Char('?'));
        assert_eq!(app.mode, Mode::Help);
        press(&mut app, KeyCode::Char('?'));
        assert_eq!(app.mode, Mode::List);
        press(&mut app, KeyCode::Char('r'));
        assert_eq!(app.subjects[0].pid(), 3, "the least first");
        press(&mut app, KeyCode::Char('S'));
        press(&mut app, KeyCode::Char('S'));
        assert_eq!((COLUMNS[app.order].title, app.subjects[0].pid()), ("PID", 1));
        assert_eq!(press(&mut app, KeyCode::Char('q')), Some(Action::Quit));
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(app.key(interrupt), Some(Action::Quit));
    }

    #[test]
    fn a_limit_is_checked_before_it_is_sent() {
        let mut app = app();
        press(&mut app, KeyCode::Char('l'));
        assert_eq!(types(&mut app, "q1M"), None, "no key but a character");
        assert!(app.message.as_deref().is_some_and(|told| told.contains("a size is")));
        press(&mut app, KeyCode::Esc);
        assert_eq!(app.typed, None);
        press(&mut app, KeyCode::Char('l'));
        assert_eq!(types(&mut app, "1M"), None);
        assert_eq!(app.message.as_deref(), Some("give 4MiB or more"));
        (0..2).for_each(|_| assert_eq!(press(&mut app, KeyCode::Backspace), None));
        let Some(Action::Ask(ask)) = types(&mut app, "32M") else { panic!("not asked") };
        assert_eq!((ask.command, &ask.words[..]), ("set", &["limit=32M".to_owned()][..]));
        assert_eq!((app.typed, ask.disk), (None, None));
    }

    #[test]
    fn a_disk_has_its_own_words() {
        let mut app = app();
        press(&mut app, KeyCode::End);
        press(&mut app, KeyCode::Char('l'));
        assert_eq!(types(&mut app, "5"), None, "below what a store works with");
        press(&mut app, KeyCode::Backspace);
        let Some(Action::Ask(ask)) = types(&mut app, "1GiB") else { panic!("not asked") };
        assert_eq!((&ask.words[0][..], ask.disk.as_deref()), ("mem_limit=1GiB", Some("a")));
        assert_eq!(press(&mut app, KeyCode::Char('o')), None);
        assert!(app.message.as_deref().is_some_and(|told| told.contains("zfold ctl")));
        press(&mut app, KeyCode::Home);
        let Some(Action::Ask(ask)) = press(&mut app, KeyCode::Char('o')) else { panic!() };
        assert_eq!((ask.command, ask.words.len()), ("page-out", 0));
    }
}
