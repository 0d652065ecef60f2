//! What this process has resident, as `/proc` tells it. Alone in a process of its own: what other
//! tests take would count, too.

use zfold_compare::proc::{anonymous_bytes, proportional_anonymous_bytes, resident_bytes};

#[test]
fn touched_memory_is_seen_exactly() {
    let before = resident_bytes().expect("proc is mounted");
    let touched = std::hint::black_box(vec![1_u8; 256 << 20]);
    let grown = resident_bytes().expect("proc is mounted") - before;
    let wanted = touched.len() as u64;
    assert!(grown.abs_diff(wanted) <= 4 << 20, "{grown}");
    let process = std::process::id();
    // Counted per CPU, and behind by some megabytes.
    assert!(anonymous_bytes(process) >= Some(wanted - (64 << 20)));
    assert!(proportional_anonymous_bytes(process) >= Some(wanted));
    assert_eq!((anonymous_bytes(0), proportional_anonymous_bytes(0)), (None, None));
}
