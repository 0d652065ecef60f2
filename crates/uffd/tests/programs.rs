//! How many pages real programs bring back under the policy, beside rules that see all touches and
//! the optimum, which knows the future: simulations over recorded touches (tests/touches).

use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::path::Path;

use zfold_uffd::policy::watched::{Passed, Telling, Watched};
use zfold_uffd::policy::{Clock, Haste, Past, Returns};

#[derive(Clone, Copy)]
enum Event {
    Touched(usize),
    /// The program has given the page up.
    Gone(usize),
}

/// Returns the events of a recording, and how many pages there are.
fn recorded(name: &str) -> (Vec<Event>, usize) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/touches");
    let file = std::fs::File::open(folder.join(name).with_extension("zst")).expect("it is there");
    let bytes = zstd::decode_all(file).expect("it is whole");
    let (mut events, mut page, mut pages) = (Vec::new(), 0_i64, 0);
    for number in bytes.split_inclusive(|byte| byte & 0x80 == 0) {
        let number = number.iter().rev().fold(0, |sum, byte| sum << 7 | i64::from(byte & 0x7f));
        let step = number >> 1;
        page += step >> 1 ^ -(step & 1);
        let at = usize::try_from(page).expect("no page lies below the first");
        pages = pages.max(at + 1);
        events.push(if number & 1 == 1 { Event::Gone(at) } else { Event::Touched(at) });
    }
    (events, pages)
}

/// A rule that says which pages leave. `at` is the number of an event.
trait Rule {
    /// A page comes, again if it had left.
    fn came(&mut self, page: usize, again: bool, at: usize);
    fn touched(&mut self, _page: usize, _at: usize) {}
    fn gone(&mut self, _page: usize) {}
    /// Returns pages that leave, at least one.
    fn leaving(&mut self, there: &[bool]) -> Vec<usize>;
}

/// Returns how many pages are brought back with up to `most` resident.
fn misses((events, pages): &(Vec<Event>, usize), most: usize, mut rule: impl Rule) -> usize {
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

struct Policy {
    clock: Clock,
    returns: Returns,
    past: Vec<Past>,
    rounds: Vec<u8>,
    hand: usize,
    most: usize,
    batch: usize,
}

impl Policy {
    fn new(pages: usize, most: usize, batch: usize) -> Self {
        let (past, rounds) = (vec![Past::UNKNOWN; pages], vec![0; pages]);
        let (clock, returns) = (Clock::default(), Returns::default());
        Self { clock, returns, past, rounds, hand: 0, most, batch }
    }
}

impl Rule for Policy {
    fn came(&mut self, page: usize, again: bool, _: usize) {
        let before = if again { self.past[page] } else { Past::UNKNOWN };
        self.past[page] = self.returns.refaulted(before, page as u64, self.clock.now());
        self.rounds[page] = self.past[page].rounds();
    }

    fn leaving(&mut self, there: &[bool]) -> Vec<usize> {
        let (mut leaving, mut passed, now) = (Vec::new(), 0, self.clock.now());
        while leaving.len() < self.batch {
            let page = self.hand;
            self.hand = (page + 1) % there.len();
            let haste = Haste::after(passed / there.len());
            passed += 1;
            if !there[page] {
                continue;
            }
            let left = haste.pass(self.rounds[page], self.past[page], now);
            self.rounds[page] = left.unwrap_or(0);
            if left.is_none() {
                self.past[page] = self.returns.left(self.past[page], page as u64, now);
                leaving.push(page);
            }
        }
        self.clock.advance(self.batch, self.most);
        leaving
    }
}

/// The policy where accesses of marked pages are seen.
struct Marks {
    policy: Policy,
    telling: Telling,
    marked: Vec<bool>,
    arrived: Vec<usize>,
}

impl Marks {
    fn new(policy: Policy) -> Self {
        let marked = vec![false; policy.past.len()];
        let (telling, arrived) = (Telling::default(), Vec::new());
        Self { policy, telling, marked, arrived }
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
        self.marked[page] = false;
    }

    fn gone(&mut self, page: usize) {
        self.marked[page] = false;
    }

    fn leaving(&mut self, there: &[bool]) -> Vec<usize> {
        let arrived = std::mem::take(&mut self.arrived);
        arrived.into_iter().filter(|&page| there[page]).for_each(|page| self.marked[page] = true);
        let (mut leaving, mut passed, now) = (Vec::new(), 0, self.policy.clock.now());
        while leaving.len() < self.policy.batch {
            let page = self.policy.hand;
            self.policy.hand = (page + 1) % there.len();
            let haste = Haste::after(passed / there.len());
            passed += 1;
            if !there[page] {
                continue;
            }
            let (rounds, past) = (self.policy.rounds[page], self.policy.past[page]);
            let what = match Watched::from_rounds(rounds) {
                Some(of) => {
                    let touched = Some(!self.marked[page]);
                    self.telling.pass(haste, of, (page as u64, past, now), touched)
                }
                None => haste.pass(rounds, past, now).map_or(Passed::Leaves, Passed::Stays),
            };
            match what {
                Passed::Leaves => {
                    self.policy.past[page] = self.policy.returns.left(past, page as u64, now);
                    self.marked[page] = false;
                    leaving.push(page);
                }
                Passed::Stays(left) => self.policy.rounds[page] = left,
                Passed::Marked(left) => {
                    self.policy.rounds[page] = left;
                    self.marked[page] = true;
                }
            }
        }
        self.policy.clock.advance(self.policy.batch, self.policy.most);
        leaving
    }
}

/// The page that was touched the longest time ago leaves.
struct Recent {
    last: Vec<usize>,
    order: BTreeMap<usize, usize>,
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
struct SecondChance {
    /// When each page came, if it is there, and whether it was touched.
    came: Vec<Option<(usize, bool)>>,
    queue: VecDeque<(usize, usize)>,
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
struct Optimum {
    /// For each event, the next touch of its page, or the end of time.
    next: Vec<usize>,
    needed: Vec<usize>,
    latest: BinaryHeap<(usize, usize)>,
}

impl Optimum {
    fn new((events, pages): &(Vec<Event>, usize)) -> Self {
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

#[test]
fn what_real_programs_bring_back_is_as_recorded() {
    println!("pages brought back, in thousands: MiB     LRU   CLOCK optimum  policy with marks");
    // One page in so many was kept in the recording; limits in MiB, and what the policy misses
    // without and with marks.
    for (name, kept, limits) in [
        ("rustc", 8, [(28, [33_955, 28_380]), (40, [14_805, 12_663])]),
        ("tsc", 4, [(48, [43_722, 38_459]), (64, [22_291, 17_955])]),
        ("node", 8, [(120, [55_417, 56_377]), (160, [42_382, 36_763])]),
    ] {
        let touches = recorded(name);
        let pages = touches.1;
        for (mib, expected) in limits {
            let most = (mib << 8) / kept;
            let recent = Recent { last: vec![0; pages], order: BTreeMap::new() };
            let recent = misses(&touches, most, recent);
            let chance = SecondChance { came: vec![None; pages], queue: VecDeque::new() };
            let chance = misses(&touches, most, chance);
            let best = misses(&touches, most, Optimum::new(&touches));
            let policy = || Policy::new(pages, most, 32 / kept);
            let (faults, marks) = (policy(), Marks::new(policy()));
            let found = [misses(&touches, most, faults), misses(&touches, most, marks)];
            let all = [recent, chance, best, found[0], found[1]];
            let [r, c, b, p, m] = all.map(|missed| missed * kept / 1000);
            println!("{name:12} {mib:28} {r:7} {c:7} {b:7} {p:7} {m:10}");
            assert!(all.iter().all(|missed| best <= *missed), "no rule is better than the optimum");
            assert_eq!(found, expected, "{name}, {mib} MiB");
        }
    }
}
