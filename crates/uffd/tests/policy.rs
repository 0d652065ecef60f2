//! How many pages have to be brought back under the policy, in simulations of access patterns,
//! beside rules that remember nothing, the least recently used one, which sees all accesses, and
//! the optimum, which knows the future.

use std::collections::{BTreeMap, BinaryHeap};

use zfold_uffd::curve::{Curve, Distances};
use zfold_uffd::policy::watched::{Passed, Telling, Watched};
use zfold_uffd::policy::{Clock, Haste, Past, Returns};

const PAGES: usize = 65_536;
const RESIDENT: usize = 16_384;
const TOUCHES: usize = 400_000;

/// Pages that leave at once.
const BATCH: usize = 32;

/// Marsaglia's xorshift of 64 bits, (13, 7, 17).
struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.word() % bound as u64) as usize
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Pattern {
    Uniform,
    /// A page's share is inverse to its rank, to the power of 0.99.
    Zipf,
    /// 80 % of the touches in a fifth of the pages.
    Hot,
    /// The same, with another fifth in each quarter of the touches.
    Shift,
    /// Every second touch in a sixth of the pages, the others one after the other.
    Mix,
    Loop,
    /// As many touches of a hot eighth as there are pages, and then all of them in turn.
    Scan,
}

const PATTERNS: [Pattern; 7] = [
    Pattern::Hot,
    Pattern::Zipf,
    Pattern::Mix,
    Pattern::Loop,
    Pattern::Uniform,
    Pattern::Scan,
    Pattern::Shift,
];

/// Returns the pages that are touched: all of them once, in order, and then by a pattern.
fn touches(pattern: Pattern, touches: usize) -> Vec<usize> {
    let mut random = Random(88_172_645_463_325_252);
    let mut pages: Vec<usize> = (0..PAGES).collect();
    (1..PAGES).rev().for_each(|at| pages.swap(at, random.below(at + 1)));
    let mut sum = 0.0;
    let ranks: Vec<f64> = (1..=PAGES)
        .map(|rank| {
            sum += (rank as f64).powf(-0.99);
            sum
        })
        .collect();
    let mut scanned = 0;
    let next = |at: usize| match pattern {
        Pattern::Uniform => random.below(PAGES),
        Pattern::Zipf => {
            let share = (random.word() >> 11) as f64 / (1_u64 << 53) as f64 * sum;
            pages[ranks.partition_point(|rank| *rank < share).min(PAGES - 1)]
        }
        Pattern::Hot | Pattern::Shift => {
            let phase = if pattern == Pattern::Shift { at * 4 / touches } else { 0 };
            match random.below(100) < 80 {
                true => pages[(phase * (PAGES / 5) + random.below(PAGES / 5)) % PAGES],
                false => pages[random.below(PAGES)],
            }
        }
        Pattern::Mix if at % 2 == 1 => pages[random.below(PAGES / 6)],
        Pattern::Scan if at % (2 * PAGES) < PAGES => pages[random.below(PAGES / 8)],
        Pattern::Mix | Pattern::Loop | Pattern::Scan => {
            scanned += 1;
            (scanned - 1) % PAGES
        }
    };
    (0..PAGES).chain((0..touches).map(next)).collect()
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    /// Whatever the hand finds.
    Fifo,
    /// All that has come is spared once.
    Once,
    Policy,
    /// The policy where accesses to marked pages are seen.
    Marks,
}

/// What a simulation does.
struct Outcome {
    /// How often a page was missing, after all had been touched once.
    missed: usize,
    /// First accesses to marked pages.
    hints: usize,
    /// How often a page was marked.
    marks: usize,
    /// What that tells of other limits.
    curve: Curve,
}

/// Simulates a clock, with up to `most` pages resident; returns how often a page was missing, after
/// all had been touched once.
fn misses(rule: Rule, touches: &[usize], most: usize) -> usize {
    simulated(rule, touches, most).missed
}

/// The same, and more.
fn simulated(rule: Rule, touches: &[usize], most: usize) -> Outcome {
    let distances = Distances::default();
    let (clock, mut returns) = (Clock::default(), Returns::default());
    let (mut there, mut marked) = (vec![false; PAGES], vec![false; PAGES]);
    let (mut telling, mut arrived) = (Telling::default(), Vec::new());
    let (mut rounds, mut past) = (vec![0_u8; PAGES], vec![Past::default(); PAGES]);
    let (mut resident, mut hand) = (0, 0);
    let (mut missed, mut hints, mut marks) = (0, 0, 0);
    for (at, &page) in touches.iter().enumerate() {
        if there[page] {
            hints += usize::from(std::mem::take(&mut marked[page]));
            continue;
        }
        missed += usize::from(at >= PAGES);
        if resident == most {
            let (mut passed, now) = (0, clock.now());
            for page in arrived.drain(..) {
                marks += usize::from(!std::mem::replace(&mut marked[page], true));
            }
            while resident > most - BATCH {
                let page = hand;
                hand = (hand + 1) % PAGES;
                let haste = Haste::after(passed / PAGES);
                passed += 1;
                if !there[page] {
                    continue;
                }
                let at = (page as u64, past[page], now);
                let stays = |left: Option<u8>| left.map_or(Passed::Leaves, Passed::Stays);
                let what = match (rule, Watched::from_rounds(rounds[page])) {
                    (_, Some(watched)) => telling.pass(haste, watched, at, Some(!marked[page])),
                    (Rule::Policy | Rule::Marks, _) => {
                        stays(haste.pass(rounds[page], past[page], now))
                    }
                    _ => stays(rounds[page].checked_sub(1)),
                };
                match what {
                    Passed::Leaves => {
                        (there[page], marked[page]) = (false, false);
                        resident -= 1;
                        past[page] = returns.left(past[page], page as u64, now);
                    }
                    Passed::Stays(left) => rounds[page] = left,
                    Passed::Marked(left) => {
                        rounds[page] = left;
                        marks += usize::from(!std::mem::replace(&mut marked[page], true));
                    }
                }
            }
            distances.left(BATCH, now);
            clock.advance(BATCH, most);
        }
        there[page] = true;
        resident += 1;
        let now = clock.now();
        if at >= PAGES {
            distances.returned(&[past[page].at()], now, most);
        }
        let before = past[page];
        past[page] = returns.refaulted(before, page as u64, now);
        rounds[page] = match rule {
            Rule::Fifo => 0,
            Rule::Once => 1,
            Rule::Policy => past[page].rounds(),
            Rule::Marks => telling.came(returns, before, (page as u64, past[page], now)),
        };
        if Watched::from_rounds(rounds[page]).is_some() {
            arrived.push(page);
        }
    }
    Outcome { missed, hints, marks, curve: distances.curve() }
}

/// The same of a rule that sees all touches and evicts the least recently touched page.
fn least_recently_used(touches: &[usize]) -> usize {
    let mut last = vec![None; PAGES];
    let mut order = BTreeMap::new();
    let mut missed = 0;
    for (at, &page) in touches.iter().enumerate() {
        if let Some(before) = last[page].replace(at) {
            order.remove(&before);
        } else {
            missed += usize::from(at >= PAGES);
            if order.len() == RESIDENT
                && let Some((_, oldest)) = order.pop_first()
            {
                last[oldest] = None;
            }
        }
        order.insert(at, page);
    }
    missed
}

/// The same of the rule of Belady, which evicts what is not needed for the longest time.
fn optimum(touches: &[usize], most: usize) -> usize {
    let mut soonest = vec![usize::MAX; PAGES];
    let next: Vec<usize> = touches
        .iter()
        .enumerate()
        .rev()
        .map(|(at, &page)| std::mem::replace(&mut soonest[page], at))
        .collect();
    let mut needed: Vec<Option<usize>> = vec![None; PAGES];
    let mut latest = BinaryHeap::new();
    let (mut resident, mut missed) = (0, 0);
    for (at, (&page, &then)) in touches.iter().zip(next.iter().rev()).enumerate() {
        if needed[page].is_none() {
            missed += usize::from(at >= PAGES);
            while resident == most {
                let (then, page) = latest.pop().expect("what is resident is in it");
                if needed[page] == Some(then) {
                    needed[page] = None;
                    resident -= 1;
                }
            }
            resident += 1;
        }
        needed[page] = Some(then);
        latest.push((then, page));
    }
    missed
}

#[test]
fn a_policy_that_remembers_brings_fewer_pages_back() {
    println!("pages brought back  once    fifo  policy     LRU optimum");
    for pattern in PATTERNS {
        let touches = touches(pattern, TOUCHES);
        let [once, fifo, policy] =
            [Rule::Once, Rule::Fifo, Rule::Policy].map(|rule| misses(rule, &touches, RESIDENT));
        let (recent, best) = (least_recently_used(&touches), optimum(&touches, RESIDENT));
        let name = format!("{pattern:?}");
        println!("{name:16} {once:7} {fifo:7} {policy:7} {recent:7} {best:7}");
        let most = match pattern {
            Pattern::Hot => 100_000,
            Pattern::Zipf => 77_000,
            Pattern::Mix | Pattern::Scan => 197_000,
            // A rule that sees only what was touched last misses all of them.
            Pattern::Loop => 355_000,
            // Each hot page is touched six times before others are hot.
            Pattern::Shift => once + once / 8,
            Pattern::Uniform => once + once / 100,
        };
        assert!(policy <= most, "{pattern:?}: {policy}, and should be at most {most}");
        assert!(best <= policy.min(recent), "no rule is better than the optimum");
    }
}

/// Where accesses are seen; the last numbers are what may be missed, and how many first accesses to
/// marked pages there may be, in thousandths of a touch, and how many marks.
#[test]
fn accesses_that_are_seen_bring_fewer_pages_back() {
    println!("pages brought back: touches  faults   marks; a touch: hints, marks");
    for (pattern, expected) in [
        (Pattern::Hot, [[74_771, 134, 454], [620_134, 107, 276]]),
        (Pattern::Zipf, [[68_296, 70, 381], [604_138, 59, 224]]),
        (Pattern::Mix, [[178_144, 61, 636], [1_623_465, 61, 472]]),
        (Pattern::Loop, [[347_296, 11, 273], [3_258_757, 1, 83]]),
        (Pattern::Uniform, [[300_173, 38, 355], [3_001_239, 10, 115]]),
        (Pattern::Scan, [[176_563, 42, 515], [1_629_536, 42, 385]]),
        (Pattern::Shift, [[145_366, 192, 691], [705_933, 118, 308]]),
    ] {
        for (times, [missed, hints, marks]) in [1, 10].into_iter().zip(expected) {
            let touches = touches(pattern, times * TOUCHES);
            let by_faults = misses(Rule::Policy, &touches, RESIDENT);
            let seen = simulated(Rule::Marks, &touches, RESIDENT);
            let name = format!("{pattern:?}");
            let [paid, marked] = [seen.hints, seen.marks].map(|all| all * 1000 / (times * TOUCHES));
            let change = 100.0 * (seen.missed as f64 / by_faults as f64 - 1.0);
            let all = format!("{change:+5.1} % {paid:5} {marked:5}");
            println!("{name:18} {times:8} {by_faults:7} {:7} {all}", seen.missed);
            let found = [seen.missed, paid, marked];
            assert_eq!(found, [missed, hints, marks], "{pattern:?}, {times}");
        }
    }
}

/// Where a hot set hardly fits, nearly all that is resident is hot, and is touched much as if at
/// random. Whoever takes few looks for evidence gives marks up, and brings 13 % fewer pages back.
#[test]
fn a_hot_set_that_hardly_fits_is_recognised() {
    let touches = touches(Pattern::Hot, TOUCHES);
    let resident = PAGES * 22 / 100;
    let [faults, seen] = [Rule::Policy, Rule::Marks].map(|rule| misses(rule, &touches, resident));
    println!("{resident} resident: by faults {faults}, seen {seen}");
    assert!(seen < faults * 83 / 100, "{seen}, and {faults} by faults");
}

#[test]
fn what_was_hot_is_found_out() {
    let slow = touches(Pattern::Shift, 4 * TOUCHES);
    let [once, policy] = [Rule::Once, Rule::Policy].map(|rule| misses(rule, &slow, RESIDENT));
    println!("four hot sets of {TOUCHES} touches each: once {once}, policy {policy}");
    assert!(policy < once - once / 8, "{policy} instead of {once}");
}

#[test]
fn the_longer_it_sees_the_better_it_knows() {
    let long = touches(Pattern::Hot, 5 * TOUCHES);
    let (policy, recent) = (misses(Rule::Policy, &long, RESIDENT), least_recently_used(&long));
    println!("{} touches: policy {policy}, LRU {recent}", 5 * TOUCHES);
    assert!(policy < recent * 4 / 5, "{policy}, and the least recently used rule {recent}");
}

/// What does not quite fit: without chance, each page leaves before it is needed again.
#[test]
fn a_part_of_a_loop_stays() {
    let long = touches(Pattern::Loop, 5 * TOUCHES);
    println!("resident, pages brought back: once  policy optimum");
    for (most, at_most) in
        [(PAGES * 7 / 8, 900_000), (PAGES / 2, 1_350_000), (PAGES / 4, 1_700_000)]
    {
        let [once, policy] = [Rule::Once, Rule::Policy].map(|rule| misses(rule, &long, most));
        println!("{most:8} {once:7} {policy:7} {:7}", optimum(&long, most));
        assert_eq!(once, long.len() - PAGES);
        assert!(policy < at_most, "{policy} with {most} resident");
    }
}

#[test]
fn what_higher_limits_would_do_is_estimated() {
    println!("pages brought back: percent of the limit, estimated, simulated");
    for pattern in PATTERNS {
        let touches = touches(pattern, TOUCHES);
        let Outcome { missed, curve, .. } = simulated(Rule::Policy, &touches, RESIDENT);
        assert_eq!((curve.returns(0.75), curve.returns(1.0)), (None, Some(missed as u64)));
        for percent in [125, 150, 200] {
            let estimated = curve.returns(percent as f64 / 100.0).expect("seen") as f64;
            let real = misses(Rule::Policy, &touches, RESIDENT * percent / 100) as f64;
            println!("{pattern:?} {percent} {estimated} {real}");
            assert!((estimated / real - 1.0).abs() < 0.22, "{pattern:?}: {estimated}, {real}");
        }
        // All pages fit into four times as much.
        let enough = curve.enough(0.01).expect("seen");
        println!("{pattern:?} enough {enough:.2}");
        assert!((3.8..4.2).contains(&enough), "{pattern:?}: {enough}");
    }
}
