//! All orders in which a server that puts pages into a file, a machine that writes to them and
//! gives them up, and kills of the server may follow each other: for a unit of two pages.
//!
//! A twin has one broken step, and must be caught.

use crate::model::explore;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Twin {
    None,
    /// A unit that was not noted is written as a whole.
    Overwrites,
    /// A unit is noted before it is written.
    NotedFirst,
    /// A page of a unit that was noted is not looked at.
    NotLooked,
    /// A page that was given up gets the image's contents.
    FromImage,
    /// A request is taken before its answer is in the pipe.
    TakenFirst,
    /// An answer is sent, and then taken out of the pipe.
    SentFirst,
}

const TWINS: [Twin; 6] = [
    Twin::Overwrites,
    Twin::NotedFirst,
    Twin::NotLooked,
    Twin::FromImage,
    Twin::TakenFirst,
    Twin::SentFirst,
];

/// What a page of the file holds.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
enum Page {
    Hole,
    Image,
    Zeros,
    Mine,
}

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
enum Noted {
    No,
    Begun,
    Written,
}

/// What the server does next.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
enum Step {
    Rests,
    /// A page of the unit.
    Writes(usize),
    Notes,
    Looks,
    Decides,
    Takes,
    Sends,
    Clears,
}

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
struct World {
    pages: [Page; 2],
    /// What the machine may find: its own, or what was there when it gave the page up.
    wants: [Page; 2],
    /// It gave the page up when it was not known whether the page was written.
    is_loose: [bool; 2],
    noted: Noted,
    /// `None`: it was killed.
    server: Option<Step>,
    /// The page that the machine waits for.
    asks: Option<usize>,
    in_socket: bool,
    in_pipe: bool,
    /// Answers that the machine has not read.
    answers: u8,
    kills: u8,
}

impl World {
    const START: Self = Self {
        pages: [Page::Hole; 2],
        wants: [Page::Image; 2],
        is_loose: [false; 2],
        noted: Noted::No,
        server: Some(Step::Rests),
        asks: None,
        in_socket: false,
        in_pipe: false,
        answers: 0,
        kills: 0,
    };

    fn with_page(mut self, at: usize, page: Page) -> Self {
        self.pages[at] = page;
        self
    }

    fn at(self, step: Step) -> Self {
        Self { server: Some(step), ..self }
    }

    /// Returns what the server does; nothing if it waits.
    fn serve(self, step: Step, twin: Twin) -> Option<Self> {
        let begins = Self { noted: Noted::Begun, ..self };
        Some(match step {
            Step::Rests if self.in_pipe => self.at(Step::Takes),
            Step::Rests if self.noted == Noted::Begun => self.at(Step::Writes(0)),
            Step::Rests if self.noted == Noted::No && twin == Twin::NotedFirst => {
                Self { noted: Noted::Written, ..self }.at(Step::Writes(0))
            }
            Step::Rests if self.noted == Noted::No => begins.at(Step::Writes(0)),
            Step::Rests if self.in_socket => self.at(Step::Looks),
            Step::Rests => return None,
            Step::Writes(page) => {
                let next = if page == 0 { Step::Writes(1) } else { Step::Notes };
                match self.pages[page] == Page::Hole || twin == Twin::Overwrites {
                    true => self.with_page(page, Page::Image).at(next),
                    false => self.at(next),
                }
            }
            Step::Notes => Self { noted: Noted::Written, ..self }.at(Step::Rests),
            Step::Looks => {
                let next = if twin == Twin::TakenFirst { Step::Takes } else { Step::Decides };
                let page = self.asks.expect("a request");
                let zeros = if twin == Twin::FromImage { Page::Image } else { Page::Zeros };
                match self.pages[page] == Page::Hole && twin != Twin::NotLooked {
                    true => self.with_page(page, zeros).at(next),
                    false => self.at(next),
                }
            }
            Step::Decides => {
                let next = if twin == Twin::TakenFirst { Step::Sends } else { Step::Takes };
                Self { in_pipe: true, ..self }.at(next)
            }
            Step::Takes => {
                let is_early = twin == Twin::TakenFirst && !self.in_pipe;
                let next = if is_early { Step::Decides } else { Step::Sends };
                Self { in_socket: false, ..self }.at(next)
            }
            Step::Sends if twin == Twin::SentFirst => {
                Self { answers: self.answers + 1, ..self }.at(Step::Clears)
            }
            Step::Sends => {
                Self { in_pipe: false, answers: self.answers + 1, ..self }.at(Step::Rests)
            }
            Step::Clears => Self { in_pipe: false, ..self }.at(Step::Rests),
        })
    }

    /// Returns what may come next.
    fn next(self, twin: Twin) -> Vec<Self> {
        let mut next: Vec<_> =
            self.server.and_then(|step| self.serve(step, twin)).into_iter().collect();
        if self.server.is_none() {
            next.push(self.at(Step::Rests));
        } else if self.kills < 2 {
            next.push(Self { server: None, kills: self.kills + 1, ..self });
        }
        match self.asks {
            Some(_) if self.answers > 0 => {
                next.push(Self { asks: None, answers: self.answers - 1, ..self });
            }
            _ => {}
        }
        for page in 0..2 {
            if self.asks == Some(page) {
                continue;
            }
            if self.pages[page] == Page::Hole {
                if self.asks.is_none() {
                    next.push(Self { asks: Some(page), in_socket: true, ..self });
                }
                continue;
            }
            let mut written = self.with_page(page, Page::Mine);
            written.wants[page] = Page::Mine;
            written.is_loose[page] = false;
            let mut given_up = self.with_page(page, Page::Hole);
            given_up.wants[page] = Page::Zeros;
            given_up.is_loose[page] = self.noted == Noted::Begun;
            next.extend([written, given_up]);
        }
        next
    }

    /// Says what is wrong.
    fn wrong(self, twin: Twin) -> Option<&'static str> {
        let is_right = |page: usize| match self.pages[page] {
            Page::Hole => true,
            Page::Image if self.is_loose[page] => true,
            found => found == self.wants[page],
        };
        if !(is_right(0) && is_right(1)) {
            return Some("a page has other contents than the machine left there");
        }
        match self.asks {
            None if self.answers > 0 => return Some("an answer that nobody asked for"),
            Some(page) if self.answers > 0 && self.pages[page] == Page::Hole => {
                return Some("answered, and the page is a hole");
            }
            _ => {}
        }
        let is_served = self.server.and_then(|step| self.serve(step, twin)).is_some();
        if self.asks.is_some() && self.answers == 0 && self.server.is_some() && !is_served {
            return Some("the machine waits for ever");
        }
        None
    }
}

/// Returns what goes wrong in any order.
fn explored(twin: Twin) -> Result<usize, (&'static str, World)> {
    explore(World::START, |world| world.next(twin), |world| world.wrong(twin))
}

#[test]
fn a_page_is_the_machines_in_any_order() {
    let worlds = explored(Twin::None).unwrap_or_else(|wrong| panic!("{wrong:?}"));
    assert!(worlds > 1000, "{worlds}");
}

#[test]
fn every_broken_step_is_caught() {
    for twin in TWINS {
        assert!(explored(twin).is_err(), "{twin:?} is not caught");
    }
}
