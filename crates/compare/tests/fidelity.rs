//! Pools as large as a kernel's: `linux-6.1` on the built-in captures, to the page.
//!
//! The golden numbers are this program's own. That they are the kernel's, too, was checked on the
//! full captures, of which these are parts: zbud, z3fold and zsmalloc of a running Linux 6.1 were
//! given the same pages in the same order. Their pools were within 0.2 %, 2.7 % (0.3 % where
//! nothing was freed) and 1.5 % of this program's; `docs/records/fidelity.md` has all figures.
//!
//! A number that changes here is a change of the imitation: run that check anew. Only LZ4 is used,
//! because only its library gives the kernel's sizes.

use zfold_compare::compare::{self, Plan, Preset};
use zfold_compare::input::PageSet;
use zfold_store::CodecKind;

/// Input, allocator, and the pool's pages when filled, half freed, then compacted, then refilled.
#[rustfmt::skip]
const GOLDEN: [(&str, &str, [u64; 4]); 18] = [
    ("all", "zbud", [2447, 1866, 1866, 2447]),
    ("all", "z3fold", [1674, 983, 983, 1662]),
    ("all", "zsmalloc", [1644, 1541, 863, 1644]),
    ("cc1", "zbud", [512, 379, 379, 512]),
    ("cc1", "z3fold", [369, 203, 203, 367]),
    ("cc1", "zsmalloc", [457, 401, 274, 457]),
    ("node", "zbud", [512, 378, 378, 512]),
    ("node", "z3fold", [345, 202, 202, 346]),
    ("node", "zsmalloc", [408, 377, 258, 408]),
    ("numpy", "zbud", [403, 300, 300, 401]),
    ("numpy", "z3fold", [366, 204, 204, 361]),
    ("numpy", "zsmalloc", [373, 342, 218, 373]),
    ("postgres", "zbud", [512, 383, 383, 512]),
    ("postgres", "z3fold", [342, 205, 205, 342]),
    ("postgres", "zsmalloc", [323, 285, 213, 323]),
    ("rustc", "zbud", [511, 378, 378, 511]),
    ("rustc", "z3fold", [381, 213, 213, 377]),
    ("rustc", "zsmalloc", [469, 417, 284, 469]),
];

#[test]
fn pools_are_those_of_the_kernel() {
    let plan = Plan { codecs: vec![CodecKind::Lz4.into()], ..Plan::of_preset(Preset::Linux6_1) };
    let inputs: Vec<_> = PageSet::builtin(plan.page_size.bytes()).collect();
    let records = compare::run(&plan, &inputs, &|_| ()).expect("no fault");
    let pages = |bytes: u64| bytes / plan.page_size.bytes() as u64;
    let found: Vec<(&str, &str, [u64; 4])> = (records.iter())
        .map(|record| {
            let sizes = record.sizes;
            let (half_freed, refilled) = (sizes.pool_bytes_half_freed, sizes.pool_bytes_refilled);
            let half_compacted = sizes.pool_bytes_half_compacted;
            let figures = [sizes.pool_bytes, half_freed, half_compacted, refilled].map(pages);
            (&*record.input, &*record.allocator, figures)
        })
        .collect();
    assert_eq!(found, GOLDEN);
}
