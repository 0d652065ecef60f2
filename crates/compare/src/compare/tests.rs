//! Tests of comparisons.

use std::sync::Mutex;

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
fn every_combination_has_a_record() {
    let plan = Plan { codecs: vec![CodecKind::Lz4.into(), CodecKind::Zstd.into()], ..plan() };
    let inputs = [pages("a", 8, 4096), pages("b", 8, 4096)];
    let records = run(&plan, &inputs, &|_| ()).expect("no fault");
    let names: Vec<[&str; 3]> = (records.iter())
        .map(|record| [&*record.input, &*record.codec, &*record.allocator])
        .collect();
    assert_eq!(names.len(), 18);
    assert_eq!((names[0], names[6]), (["all", "lz4", "zbud"], ["a", "lz4", "zbud"]));
    assert_eq!(names[17], ["b", "zstd", "zsmalloc"]);
}

#[test]
fn several_inputs_share_a_pool_first() {
    // With a heap for each CPU, sizes depend on where the thread runs.
    let plan = Plan { locking: Some(Locking::PoolLock), ..plan() };
    let inputs = [pages("a", 16, 4096), pages("b", 24, 4096)];
    let records = run(&plan, &inputs, &|_| ()).expect("no fault");
    for (all, (a, b)) in records[..3].iter().zip(records[3..6].iter().zip(&records[6..])) {
        assert_eq!((all.place, a.place, b.place), (0, 1, 2));
        assert_eq!((&*all.input, all.pages), ("all", 40));
        let (all, a, b) = (all.sizes, a.sizes, b.sizes);
        assert_eq!(all.same_filled, a.same_filled + b.same_filled);
        assert_eq!(all.objects, a.objects + b.objects);
        assert_eq!(all.payload_bytes, a.payload_bytes + b.payload_bytes);
        assert!(all.pool_bytes <= a.pool_bytes + b.pool_bytes, "{all:?}");
    }
    let pool = |place: usize| records[3 * place + 2].sizes.pool_bytes;
    assert!(pool(0) < pool(1) + pool(2), "zsmalloc shares zspages");
    assert_eq!(run(&plan, &inputs[..1], &|_| ()).expect("no fault")[0].input, "a");
}

#[test]
fn figures_are_of_the_points_they_name() {
    for page_size in [PageSize::KIB4, PageSize::KIB16, PageSize::KIB64] {
        let plan = Plan { page_size, threads: 2, ..plan() };
        let inputs = [pages("a", 128, page_size.bytes())];
        for record in run(&plan, &inputs, &|_| ()).expect("no fault") {
            let sizes = record.sizes;
            let kept = record.pages - sizes.rejected;
            assert_eq!((sizes.same_filled, sizes.objects), (16, kept - 16), "{record:?}");
            assert!(sizes.payload_bytes < sizes.pool_bytes, "{record:?}");
            assert!(sizes.pool_bytes <= sizes.pool_bytes_peak, "{record:?}");
            assert!(sizes.pool_bytes_half_freed < Some(sizes.pool_bytes), "{record:?}");
            assert!(sizes.pool_bytes_half_compacted <= sizes.pool_bytes_half_freed);
            assert!(sizes.pool_bytes_refilled > sizes.pool_bytes_half_compacted);
            assert_eq!(sizes.pool_bytes_emptied, 0);
            assert_eq!((record.stores.count(), record.loads.count()), (128 + 64, 256));
        }
    }
}

#[test]
fn repeats_add_their_times() {
    let plan = Plan { repeat: 3, ..plan() };
    let records = run(&plan, &[pages("a", 16, 4096)], &|_| ()).expect("no fault");
    assert!(records.iter().all(|record| record.loads.count() == 3 * 32));
}

#[test]
fn chain_out_of_range_is_a_fault() {
    let plan = Plan { chain: 3, ..plan() };
    let error = run(&plan, &[pages("a", 1, 4096)], &|_| ()).expect_err("bad chain");
    assert!(matches!(error.fault, Fault::Config(_)), "{error}");
}

#[test]
fn progress_is_told_and_ends_before_the_total() {
    let steps = Mutex::new(Vec::new());
    let tell = |step: Step<'_>| {
        let mut steps = steps.lock().expect("no panic");
        steps.push((step.what.to_owned(), step.done, step.total));
    };
    run(&plan(), &[pages("a", 512, 4096)], &tell).expect("no fault");
    let steps = steps.into_inner().expect("no panic");
    assert_eq!(steps[0].0, "a, zbud, lz4");
    assert!(steps.iter().all(|(_, done, total)| done <= total && *total == 3 * 1792), "{steps:?}");
    assert!(steps.is_sorted_by(|a, b| a.1 < b.1));
}
