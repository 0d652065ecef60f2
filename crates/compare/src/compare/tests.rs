//! Tests of comparisons.

use std::cell::RefCell;

use zfold_store::CodecKind;

use super::*;
use crate::input::PageSet;
use crate::rng::SplitMix64;

/// Pages of text, with a zero page and a random page among each eight.
fn pages(name: &str, count: usize, page_size: usize) -> PageSet {
    let mut rng = SplitMix64::new(9);
    let byte = |position: usize| match position / page_size % 8 {
        0 => 0,
        1 => rng.next_u64() as u8,
        _ => b'a' + rng.below(8) as u8,
    };
    let bytes = (0..count * page_size).map(byte).collect();
    PageSet::new(name, page_size, bytes).expect("whole pages")
}

fn plan() -> Plan {
    Plan { codecs: vec![CodecKind::Lz4.into()], ..Plan::default() }
}

#[test]
fn figures_are_of_the_points_they_name() {
    for page_size in [PageSize::KIB4, PageSize::KIB16, PageSize::KIB64] {
        let plan = Plan { page_size, ..plan() };
        let inputs = [pages("a", 128, page_size.bytes())];
        for record in run(&plan, &inputs, &|_| ()).expect("no fault") {
            let sizes = record.sizes;
            let kept = record.pages - sizes.rejected;
            assert_eq!((sizes.same_filled, sizes.objects), (16, kept - 16), "{record:?}");
            assert!(sizes.payload_bytes < sizes.pool_bytes, "{record:?}");
            assert!(sizes.pool_bytes <= sizes.pool_bytes_peak, "{record:?}");
            assert!(sizes.pool_bytes_half_freed < sizes.pool_bytes, "{record:?}");
            assert!(sizes.pool_bytes_half_compacted <= sizes.pool_bytes_half_freed);
            assert!(sizes.pool_bytes_refilled > sizes.pool_bytes_half_compacted);
            assert_eq!(sizes.pool_bytes_emptied, 0);
        }
    }
}

#[test]
fn progress_is_told_and_ends_before_the_total() {
    let steps = RefCell::new(Vec::new());
    let tell = |step: Step<'_>| {
        steps.borrow_mut().push((step.what.to_owned(), step.done, step.total));
    };
    run(&plan(), &[pages("a", 512, 4096)], &tell).expect("no fault");
    let steps = steps.into_inner();
    assert_eq!(steps[0].0, "a, zbud, lz4");
    assert!(steps.iter().all(|(_, done, total)| done <= total && *total == 3 * 1792), "{steps:?}");
    assert!(steps.is_sorted_by(|a, b| a.1 < b.1));
}
