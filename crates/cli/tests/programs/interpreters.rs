//! Interpreters and virtual machines: their own allocators and collectors, many threads, and
//! memory that is shared after a fork.

use crate::job::{Job, check};
use crate::needs::{python, ready, ready_for_long, sized, text, workload};
use crate::sources;

/// Large arrays by way of the kernel, and small objects by way of the allocator.
#[test]
fn numpy_multiplies_and_sorts() {
    let test = "numpy_multiplies_and_sorts";
    let Some(python) = python(test, "numpy") else { return };
    let (program, size) = (workload("arrays.py"), sized("400", "1500"));
    check(test, |_| Job::new(&[text(&python), &program, size]));
}

/// Forked children use, and so copy, what their parent has built.
#[test]
fn python_workers_inherit_memory() {
    let test = "python_workers_inherit_memory";
    let Some(python) = python(test, "multiprocessing") else { return };
    let (program, items) = (workload("workers.py"), sized("30000", "400000"));
    let line = [text(&python), &program, items];
    check(test, |_| Job { needs_half: true, ..Job::new(&line) });
}

/// A collector that moves objects, and compiler threads.
#[test]
fn node_builds_objects() {
    let test = "node_builds_objects";
    if !ready(test, &["node"]) {
        return;
    }
    let (program, items) = (workload("objects.js"), sized("30000", "400000"));
    check(test, |_| Job::new(&["node", &program, items]));
}

#[test]
fn node_runs_the_typescript_compiler() {
    let test = "node_runs_the_typescript_compiler";
    if !ready_for_long(test, &["node", "tsc"]) {
        return;
    }
    check(test, |dir| {
        sources::typescript(dir, 600);
        let line = ["tsc", "--target", "es2019", "--strict", "--declaration", "all.ts"];
        Job { files: vec!["all.js", "all.d.ts"], ..Job::new(&line) }
    });
}

/// A large reservation of which parts are committed, given back and committed again.
#[test]
fn java_collects_with_g1() {
    let test = "java_collects_with_g1";
    if !ready_for_long(test, &["java"]) {
        return;
    }
    let (program, items) = (workload("Collections.java"), "500000");
    let heap = "-Xmx400m";
    check(test, |_| Job::new(&["java", "-XX:+UseG1GC", heap, &program, items]));
}
