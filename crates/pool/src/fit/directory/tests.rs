//! Directories match a map of granules, and their table keeps E3.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

const ANY: Lens = Lens { least: 0, more: SEGMENT };

/// Ten granules or eleven.
const TEN: Lens = Lens { least: 10, more: 1 };

/// A segment as a map of its granules: 0 is free, others name the object.
struct Map(Vec<u16>);

impl Map {
    fn extents(&self) -> Vec<(u16, u16, bool)> {
        let mut extents = Vec::new();
        for run in self.0.chunk_by(|a, b| a == b) {
            let at = extents.last().map_or(0, |&(at, len, _)| at + len);
            extents.push((at, run.len() as u16, run[0] == 0));
        }
        extents
    }

    fn fill(&mut self, at: u16, len: u16, object: u16) {
        self.0[usize::from(at)..usize::from(at + len)].fill(object);
    }
}

proptest! {
    #[test]
    fn directories_match_a_map_of_granules(
        ops in vec((any::<bool>(), any::<bool>(), 1..60_u16), 1..400),
    ) {
        let mut table = Directories::new();
        let mut directory = table.open();
        let (mut map, mut live) = (Map(Vec::new()), Vec::new());
        for (object, (gives, moves, number)) in (1..).zip(ops) {
            if gives && !live.is_empty() {
                let (at, len) = live.swap_remove(usize::from(number) % live.len());
                prop_assert_eq!(table.give(&mut directory, at).0, len);
                map.fill(at, len, 0);
            } else if let Some(found) = table
                .find(&directory, ANY)
                .filter(|found| table.extent(&directory, found.index).len >= number)
            {
                let taker = if moves { Taker::Extent(number) } else { Taker::Object(number) };
                let (at, len, _) = table.take(&mut directory, found, taker);
                let max = if moves && number > 1 { number } else { number + 1 };
                prop_assert!((number..=max).contains(&len));
                map.fill(at, len, object);
                live.push((at, len));
            } else if directory.end() < SEGMENT {
                table.extend(&mut directory, (map.0.len() + 64).min(SEGMENT.into()) as u16);
                map.0.resize(directory.end().into(), 0);
            }
            table.check(&directory);
            table.check_table([&directory].into_iter());
            let extents: Vec<_> =
                table.extents(&directory).map(|e| (e.at, e.len, e.free)).collect();
            prop_assert_eq!(extents, map.extents());
            prop_assert!(live.iter().all(|&(at, _)| table.is_used(&directory, at)));
        }
    }
}

#[test]
fn holes_are_found_by_length_the_last_one_first() {
    let mut table = Directories::new();
    let mut directory = table.open();
    table.extend(&mut directory, 100);
    let ats = [10, 20, 10, 20, 40].map(|len| {
        let (found, _) = table.tail(&directory).unwrap();
        table.take(&mut directory, found, Taker::Object(len)).0
    });
    assert!(table.tail(&directory).is_none());
    table.give(&mut directory, ats[0]);
    table.give(&mut directory, ats[2]);
    let found = table.find(&directory, TEN).unwrap();
    assert!(found.more);
    assert_eq!(table.take(&mut directory, found, Taker::Object(9)), (30, 10, 0), "one more");
    let found = table.find(&directory, TEN).unwrap();
    assert!(!found.more);
    assert_eq!(table.take(&mut directory, found, Taker::Object(8)), (0, 8, 2));
    assert!(table.find(&directory, TEN).is_none());
    assert_eq!(table.give(&mut directory, 0), (8, 10));
}

#[test]
fn a_directory_of_single_granules_fills_the_largest_array() {
    for taker in [Taker::Object(1), Taker::Extent(1)] {
        let mut table = Directories::new();
        let mut directory = table.open();
        table.extend(&mut directory, SEGMENT);
        while let Some((found, _)) = table.tail(&directory) {
            table.take(&mut directory, found, taker);
        }
        assert_eq!(directory.len, SEGMENT - 1, "the last two granules are one extent");
        for at in 0..SEGMENT - 1 {
            table.give(&mut directory, at);
        }
        assert_eq!(table.extents(&directory).count(), 1);
        let bytes = table.bytes();
        table.close(directory);
        table.trim(std::iter::empty(), 0);
        assert!(table.bytes() == 0 && bytes > 16 << 10, "{} of {bytes}", table.bytes());
    }
}

#[test]
fn a_trimmed_table_keeps_its_directories() {
    let mut table = Directories::new();
    let mut all: Vec<_> = (0..100)
        .map(|n: u16| {
            let mut directory = table.open();
            table.extend(&mut directory, 1000);
            for _ in 0..n {
                let (found, _) = table.tail(&directory).unwrap();
                table.take(&mut directory, found, Taker::Object(3));
            }
            directory
        })
        .collect();
    let before = table.bytes();
    for directory in all.drain(10..) {
        table.close(directory);
    }
    table.check_table(all.iter());
    table.trim(all.iter_mut(), 0);
    table.check_table(all.iter());
    assert!(table.bytes() < before / 5, "{} of {before}", table.bytes());
    for (n, directory) in all.iter().enumerate() {
        table.check(directory);
        assert_eq!(table.extents(directory).filter(|extent| !extent.free).count(), n);
    }
}
