//! What real programs bring back: simulations over recorded touches (tests/touches).

use std::path::Path;

use crate::rules::{Event, Events, Marks, Optimum, Policy, Recent, SecondChance, misses};

/// Returns the events of a recording, and how many pages there are.
fn recorded(name: &str) -> Events {
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

#[test]
fn what_real_programs_bring_back_is_as_recorded() {
    println!("pages brought back, in thousands: MiB     LRU   CLOCK optimum  policy with marks");
    // One page in so many was kept in the recording; limits in MiB, and what the policy misses
    // without and with marks.
    for (name, kept, limits) in [
        ("rustc", 8, [(28, [33_955, 28_380]), (40, [14_816, 12_663])]),
        ("tsc", 4, [(48, [43_281, 38_459]), (64, [22_291, 17_955])]),
        ("node", 8, [(120, [55_417, 56_377]), (160, [42_382, 36_763])]),
    ] {
        let touches = recorded(name);
        let pages = touches.1;
        for (mib, expected) in limits {
            let most = (mib << 8) / kept;
            let recent = misses(&touches, most, &mut Recent::new(pages));
            let chance = misses(&touches, most, &mut SecondChance::new(pages));
            let best = misses(&touches, most, &mut Optimum::new(&touches));
            let policy = || Policy::new(pages, most, 32 / kept);
            let (mut faults, mut marks) = (policy(), Marks::new(policy()));
            let found = [misses(&touches, most, &mut faults), misses(&touches, most, &mut marks)];
            let all = [recent, chance, best, found[0], found[1]];
            let [r, c, b, p, m] = all.map(|missed| missed * kept / 1000);
            println!("{name:12} {mib:28} {r:7} {c:7} {b:7} {p:7} {m:10}");
            assert!(all.iter().all(|missed| best <= *missed), "no rule is better than the optimum");
            assert_eq!(found, expected, "{name}, {mib} MiB");
        }
    }
}
