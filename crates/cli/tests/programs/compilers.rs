//! Compilers: large heaps that only grow, many short processes, and files that must not differ in
//! a bit.

use crate::common::needs;
use crate::job::{Job, check};
use crate::needs::{ready, sized};
use crate::sources;

/// Make, shells, compiler drivers, compilers, assemblers, a linker.
#[test]
fn make_builds_a_project() {
    needs!(ready(&["make", "cc"]));
    check(|dir| {
        sources::c_project(dir, sized(6, 40));
        let line = ["sh", "-c", "make --silent -j2 && ./project"];
        Job { files: vec!["project"], needs_half: true, ..Job::new(&line) }
    });
}

#[test]
fn rustc_builds_a_crate() {
    needs!(ready(&["rustc"]));
    check(|dir| {
        sources::rust_crate(dir, sized(6, 60));
        let line = ["rustc", "--edition=2021", "--crate-type=rlib", "-Copt-level=2", "crate.rs"];
        Job { files: vec!["libcrate.rlib"], ..Job::new(&line) }
    });
}
