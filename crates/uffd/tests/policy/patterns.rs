//! What access patterns bring back.

use crate::rules::{self, Event, Events, Marks, Optimum, Policy, Recent, Spared};

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
fn touches(pattern: Pattern, touches: usize) -> Events {
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
    ((0..PAGES).chain((0..touches).map(next)).map(Event::Touched).collect(), PAGES)
}

fn policy(most: usize) -> Policy {
    Policy::new(PAGES, most, BATCH)
}

/// Returns how many pages the policy brings back.
fn misses(touches: &Events, most: usize) -> usize {
    rules::misses(touches, most, &mut policy(most))
}

/// The same of a rule that spares all that has come once.
fn once(touches: &Events, most: usize) -> usize {
    rules::misses(touches, most, &mut Spared(policy(most), 1))
}

/// The same of a rule that sees all touches and evicts the least recently touched page.
fn least_recently_used(touches: &Events) -> usize {
    rules::misses(touches, RESIDENT, &mut Recent::new(PAGES))
}

/// The same of the rule of Belady, which evicts what is not needed for the longest time.
fn optimum(touches: &Events, most: usize) -> usize {
    rules::misses(touches, most, &mut Optimum::new(touches))
}

#[test]
fn a_policy_that_remembers_brings_fewer_pages_back() {
    println!("pages brought back  once    fifo  policy     LRU optimum");
    for pattern in PATTERNS {
        let touches = touches(pattern, TOUCHES);
        let (once, policy) = (once(&touches, RESIDENT), misses(&touches, RESIDENT));
        let fifo = rules::misses(&touches, RESIDENT, &mut Spared(self::policy(RESIDENT), 0));
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
            let by_faults = misses(&touches, RESIDENT);
            let mut rule = Marks::new(policy(RESIDENT));
            let seen = rules::misses(&touches, RESIDENT, &mut rule);
            let name = format!("{pattern:?}");
            let [paid, marked] = [rule.hints, rule.marks].map(|all| all * 1000 / (times * TOUCHES));
            let change = 100.0 * (seen as f64 / by_faults as f64 - 1.0);
            let all = format!("{change:+5.1} % {paid:5} {marked:5}");
            println!("{name:18} {times:8} {by_faults:7} {seen:7} {all}");
            let found = [seen, paid, marked];
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
    let faults = misses(&touches, resident);
    let seen = rules::misses(&touches, resident, &mut Marks::new(policy(resident)));
    println!("{resident} resident: by faults {faults}, seen {seen}");
    assert!(seen < faults * 83 / 100, "{seen}, and {faults} by faults");
}

#[test]
fn what_was_hot_is_found_out() {
    let slow = touches(Pattern::Shift, 4 * TOUCHES);
    let (once, policy) = (once(&slow, RESIDENT), misses(&slow, RESIDENT));
    println!("four hot sets of {TOUCHES} touches each: once {once}, policy {policy}");
    assert!(policy < once - once / 8, "{policy} instead of {once}");
}

#[test]
fn the_longer_it_sees_the_better_it_knows() {
    let long = touches(Pattern::Hot, 5 * TOUCHES);
    let (policy, recent) = (misses(&long, RESIDENT), least_recently_used(&long));
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
        let (once, policy) = (once(&long, most), misses(&long, most));
        println!("{most:8} {once:7} {policy:7} {:7}", optimum(&long, most));
        assert_eq!(once, long.0.len() - PAGES);
        assert!(policy < at_most, "{policy} with {most} resident");
    }
}

#[test]
fn what_higher_limits_would_do_is_estimated() {
    println!("pages brought back: percent of the limit, estimated, simulated");
    for pattern in PATTERNS {
        let touches = touches(pattern, TOUCHES);
        let mut policy = policy(RESIDENT);
        let missed = rules::misses(&touches, RESIDENT, &mut policy);
        let curve = policy.distances.curve();
        assert_eq!((curve.returns(0.75), curve.returns(1.0)), (None, Some(missed as u64)));
        for percent in [125, 150, 200] {
            let estimated = curve.returns(percent as f64 / 100.0).expect("seen") as f64;
            let real = misses(&touches, RESIDENT * percent / 100) as f64;
            println!("{pattern:?} {percent} {estimated} {real}");
            assert!((estimated / real - 1.0).abs() < 0.22, "{pattern:?}: {estimated}, {real}");
        }
        // All pages fit into four times as much.
        let enough = curve.enough(0.01).expect("seen");
        println!("{pattern:?} enough {enough:.2}");
        assert!((3.8..4.2).contains(&enough), "{pattern:?}: {enough}");
    }
}
