//! Interpreters and virtual machines: their own allocators and collectors, many threads, and
//! memory that is shared after a fork.

use crate::job::{Job, check};
use crate::needs::{python, ready, ready_for_long, sized, text, workload};

/// Large arrays by way of the kernel, and small objects by way of the allocator.
#[test]
fn numpy_multiplies_and_sorts() {
    let Some(python) = python("numpy") else { return };
    let (program, size) = (workload("arrays.py"), sized("400", "1500"));
    check(|_| Job::new(&[text(&python), &program, size]));
}

/// Forked children use, and so copy, what their parent has built.
#[test]
fn python_workers_inherit_memory() {
    let Some(python) = python("multiprocessing") else { return };
    let (program, items) = (workload("workers.py"), sized("30000", "400000"));
    let line = [text(&python), &program, items];
    check(|_| Job { needs_half: true, ..Job::new(&line) });
}

/// A collector that moves objects, and compiler threads.
#[test]
fn node_builds_objects() {
    zfold_testing::needs!(ready(&["node"]));
    let (program, items) = (workload("objects.js"), sized("30000", "400000"));
    check(|_| Job::new(&["node", &program, items]));
}

/// A large reservation of which parts are committed, given back and committed again.
#[test]
fn java_collects_with_g1() {
    zfold_testing::needs!(ready_for_long(&["java"]));
    let (program, items) = (workload("Collections.java"), "500000");
    let heap = "-Xmx400m";
    check(|_| Job::new(&["java", "-XX:+UseG1GC", heap, &program, items]));
}
