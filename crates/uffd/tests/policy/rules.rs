//! Rules that say which pages leave, and the simulation that they are tried in.

use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use zfold_uffd::curve::Distances;
use zfold_uffd::policy::watched::{Passed, Telling, Watched};
use zfold_uffd::policy::{Clock, Era, Haste, Past, Returns};

#[derive(Clone, Copy)]
pub(crate) enum Event {
    Touched(usize),
    /// The program has given the page up.
    Gone(usize),
}

/// Events, and how many pages there are.
pub(crate) type Events = (Vec<Event>, usize);

/// A rule that says which pages leave. `at` is the number of an event.
pub(crate) trait Rule {
    /// A page comes, again if it had left.
    fn came(&mut self, page: usize, again: bool, at: usize);
    fn touched(&mut self, _page: usize, _at: usize) {}
    fn gone(&mut self, _page: usize) {}
    /// Returns pages that leave, at least one.
    fn leaving(&mut self, there: &[bool]) -> Vec<usize>;
}

/// Returns how many pages are brought back with up to `most` resident.
pub(crate) fn misses((events, pages): &Events, most: usize, rule: &mut impl Rule) -> usize {
    let (mut there, mut known) = (vec![false; *pages], vec![false; *pages]);
    let (mut resident, mut missed) = (0, 0);
    for (at, event) in events.iter().enumerate() {
        match *event {
            Event::Gone(page) => {
                resident -= usize::from(std::mem::take(&mut there[page]));
                known[page] = false;
                rule.gone(page);
            }
            Event::Touched(page) if there[page] => rule.touched(page, at),
            Event::Touched(page) => {
                if resident == most {
                    for page in rule.leaving(&there) {
                        resident -= usize::from(std::mem::take(&mut there[page]));
                    }
                }
                rule.came(page, known[page], at);
                missed += usize::from(known[page]);
                (there[page], known[page]) = (true, true);
                resident += 1;
            }
        }
    }
    missed
}

/// The policy, and what it tells of other limits.
pub(crate) struct Policy {
    clock: Clock,
    returns: Returns,
    past: Vec<Past>,
    rounds: Vec<u8>,
    hand: usize,
    most: usize,
    batch: usize,
    pub(crate) distances: Distances,
}

impl Policy {
    pub(crate) fn new(pages: usize, most: usize, batch: usize) -> Self {
        let (past, rounds) = (vec![Past::UNKNOWN; pages], vec![0; pages]);
        let (clock, returns, distances) = Default::default();
        Self { clock, returns, past, rounds, hand: 0, most, batch, distances }
    }

    /// Has the hand choose a batch; `pass` says what becomes of a page with these rounds.
    fn choose(
        &mut self,
        there: &[bool],
        mut pass: impl FnMut(Haste, u8, (u64, Past, Era)) -> Passed,
    ) -> Vec<usize> {
        let (mut leaving, mut passed, now) = (Vec::new(), 0, self.clock.now());
        while leaving.len() < self.batch {
            let page = self.hand;
            self.hand = (page + 1) % there.len();
            let haste = Haste::after(passed / there.len());
            passed += 1;
            if !there[page] || leaving.contains(&page) {
                continue;
            }
            match pass(haste, self.rounds[page], (page as u64, self.past[page], now)) {
                Passed::Leaves => {
                    self.past[page] = self.returns.left(self.past[page], page as u64, now);
                    leaving.push(page);
                }
                Passed::Stays(left) | Passed::Marked(left) => self.rounds[page] = left,
            }
        }
        self.distances.left(self.batch, now);
        self.clock.advance(self.batch, self.most);
        leaving
    }
}

fn stays(left: Option<u8>) -> Passed {
    left.map_or(Passed::Leaves, Passed::Stays)
}

impl Rule for Policy {
    fn came(&mut self, page: usize, again: bool, _: usize) {
        let (before, now) = (if again { self.past[page] } else { Past::UNKNOWN }, self.clock.now());
        if again {
            self.distances.returned(&[before.at()], now, self.most);
        }
        self.past[page] = self.returns.refaulted(before, page as u64, now);
        self.rounds[page] = self.past[page].rounds();
    }

    fn leaving(&mut self, there: &[bool]) -> Vec<usize> {
        self.choose(there, |haste, rounds, (_, past, now)| stays(haste.pass(rounds, past, now)))
    }
}

/// All that has come is spared for so many rounds.
pub(crate) struct Spared(pub(crate) Policy, pub(crate) u8);

impl Rule for Spared {
    fn came(&mut self, page: usize, again: bool, at: usize) {
        self.0.came(page, again, at);
        self.0.rounds[page] = self.1;
    }

    fn leaving(&mut self, there: &[bool]) -> Vec<usize> {
        self.0.choose(there, |_, rounds, _| stays(rounds.checked_sub(1)))
    }
}

/// The policy where accesses of marked pages are seen.
pub(crate) struct Marks {
    policy: Policy,
    telling: Telling,
    marked: Vec<bool>,
    arrived: Vec<usize>,
    /// First accesses to marked pages.
    pub(crate) hints: usize,
    /// How often a page was marked.
    pub(crate) marks: usize,
}

impl Marks {
    pub(crate) fn new(policy: Policy) -> Self {
        let marked = vec![false; policy.past.len()];
        let (telling, arrived) = (Telling::default(), Vec::new());
        Self { policy, telling, marked, arrived, hints: 0, marks: 0 }
    }
}

impl Rule for Marks {
    fn came(&mut self, page: usize, again: bool, at: usize) {
        let policy = &mut self.policy;
        let before = if again { policy.past[page] } else { Past::UNKNOWN };
        policy.came(page, again, at);
        let (now, came) = (policy.clock.now(), policy.past[page]);
        let rounds = self.telling.came(policy.returns, before, (page as u64, came, now));
        policy.rounds[page] = rounds;
        if Watched::from_rounds(rounds).is_some() {
            self.arrived.push(page);
        }
    }

    fn touched(&mut self, page: usize, _: usize) {
        self.hints += usize::from(std::mem::take(&mut self.marked[page]));
    }

    fn gone(&mut self, page: usize) {
        self.marked[page] = false;
    }

    fn leaving(&mut self, there: &[bool]) -> Vec<usize> {
        let Self { policy, telling, marked, arrived, marks, .. } = self;
        let mark = |marked: &mut Vec<bool>, page: usize| {
            usize::from(!std::mem::replace(&mut marked[page], true))
        };
        let arrived = arrived.drain(..).filter(|&page| there[page]);
        *marks += arrived.map(|page| mark(marked, page)).sum::<usize>();
        policy.choose(there, |haste, rounds, at| {
            let page = at.0 as usize;
            let Some(of) = Watched::from_rounds(rounds) else {
                marked[page] = false;
                return stays(haste.pass(rounds, at.1, at.2));
            };
            let passed = telling.pass(haste, of, at, Some(!marked[page]));
            match passed {
                Passed::Leaves => marked[page] = false,
                Passed::Marked(_) => *marks += mark(marked, page),
                Passed::Stays(_) => {}
            }
            passed
        })
    }
}

/// The page that was touched the longest time ago leaves.
pub(crate) struct Recent {
    last: Vec<usize>,
    order: BTreeMap<usize, usize>,
}

impl Recent {
    pub(crate) fn new(pages: usize) -> Self {
        Self { last: vec![0; pages], order: BTreeMap::new() }
    }
}

impl Rule for Recent {
    fn came(&mut self, page: usize, _: bool, at: usize) {
        self.last[page] = at;
        self.order.insert(at, page);
    }

    fn touched(&mut self, page: usize, at: usize) {
        self.gone(page);
        self.came(page, true, at);
    }

    fn gone(&mut self, page: usize) {
        if self.order.get(&self.last[page]) == Some(&page) {
            self.order.remove(&self.last[page]);
        }
    }

    fn leaving(&mut self, _: &[bool]) -> Vec<usize> {
        self.order.pop_first().map(|(_, page)| page).into_iter().collect()
    }
}

/// The page that came the longest time ago leaves, unless it was touched since the last look.
pub(crate) struct SecondChance {
    /// When each page came, if it is there, and whether it was touched.
    came: Vec<Option<(usize, bool)>>,
    queue: VecDeque<(usize, usize)>,
}

impl SecondChance {
    pub(crate) fn new(pages: usize) -> Self {
        Self { came: vec![None; pages], queue: VecDeque::new() }
    }
}

impl Rule for SecondChance {
    fn came(&mut self, page: usize, _: bool, at: usize) {
        self.came[page] = Some((at, false));
        self.queue.push_back((page, at));
    }

    fn touched(&mut self, page: usize, _: usize) {
        self.came[page] = self.came[page].map(|(at, _)| (at, true));
    }

    fn gone(&mut self, page: usize) {
        self.came[page] = None;
    }

    fn leaving(&mut self, _: &[bool]) -> Vec<usize> {
        loop {
            let (page, at) = self.queue.pop_front().expect("some are there");
            match self.came[page] {
                Some((came, true)) if came == at => {
                    self.came[page] = Some((at, false));
                    self.queue.push_back((page, at));
                }
                Some((came, false)) if came == at => {
                    self.came[page] = None;
                    return vec![page];
                }
                _ => {}
            }
        }
    }
}

/// The page that is not needed for the longest time leaves (Belady).
pub(crate) struct Optimum {
    /// For each event, the next touch of its page, or the end of time.
    next: Vec<usize>,
    needed: Vec<usize>,
    latest: BinaryHeap<(usize, usize)>,
}

impl Optimum {
    pub(crate) fn new((events, pages): &Events) -> Self {
        let mut soonest = vec![usize::MAX; *pages];
        let mut next: Vec<_> = (events.iter().enumerate().rev())
            .map(|(at, event)| match *event {
                Event::Touched(page) => std::mem::replace(&mut soonest[page], at),
                Event::Gone(page) => std::mem::replace(&mut soonest[page], usize::MAX),
            })
            .collect();
        next.reverse();
        Self { next, needed: vec![0; *pages], latest: BinaryHeap::new() }
    }
}

impl Rule for Optimum {
    fn came(&mut self, page: usize, _: bool, at: usize) {
        self.needed[page] = self.next[at];
        self.latest.push((self.next[at], page));
    }

    fn touched(&mut self, page: usize, at: usize) {
        self.came(page, true, at);
    }

    fn leaving(&mut self, there: &[bool]) -> Vec<usize> {
        loop {
            let (next, page) = self.latest.pop().expect("some are there");
            if there[page] && self.needed[page] == next {
                return vec![page];
            }
        }
    }
}
