//! Programs most of whose memory lies in a Redis on loopback.

use serde_json::Value;
use zfold_testing::redis::{self, Server};

use crate::common::skip;
use crate::job::{Job, check_far};
use crate::needs::{python, ready_for_long, sized, text, workload};
use crate::sources;

/// Checks that pages went there and came back.
fn assert_used(far: &Value) {
    for figure in ["puts_total", "gets_total"] {
        assert!(far[figure].as_u64() > Some(0), "{figure}: {far}");
    }
    assert_eq!(far["failures_total"], 0, "{far}");
}

#[test]
fn gcc_compiles_sqlite_in_redis() {
    let test = "gcc_compiles_sqlite_in_redis";
    if !ready_for_long(test, &["gcc"]) || !redis::ready(test) {
        return;
    }
    let source = match sources::sqlite() {
        Ok(source) => source,
        Err(reason) => return skip(test, reason),
    };
    let redis = Server::start(&[]);
    let far = check_far(test, &redis.place(), |_| Job {
        files: vec!["sqlite3.o"],
        ..Job::new(&["gcc", "-O2", "-c", text(source), "-o", "sqlite3.o"])
    });
    assert_used(&far);
    assert_eq!(redis.values(), 0, "nothing is left behind");
}

#[test]
fn numpy_multiplies_and_sorts_in_redis() {
    let test = "numpy_multiplies_and_sorts_in_redis";
    let Some(python) = python(test, "numpy").filter(|_| redis::ready(test)) else { return };
    let redis = Server::start(&[]);
    let (program, size) = (workload("arrays.py"), sized("700", "2000"));
    let far = check_far(test, &redis.place(), |_| Job::new(&[text(&python), &program, size]));
    assert_used(&far);
    assert_eq!(redis.values(), 0, "nothing is left behind");
}
