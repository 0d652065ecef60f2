//! Databases: servers with clients, a fork that saves what its parent goes on changing, and an
//! unprivileged user.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::Command;

use crate::common::{needs, skip};
use crate::job::{Job, check};
use crate::needs::{installed, ready, sized, workload};

#[test]
fn sqlite_builds_and_checks_an_index() {
    needs!(ready(&["sqlite3"]));
    let rows = sized(100_000, 600_000);
    let read = format!(".read {}", workload("index.sql"));
    let rows = format!(".parameter set :rows {rows}");
    let line = ["sqlite3", "-bail", ":memory:", ".parameter init", &rows, &read];
    check(|_| Job { needs_half: true, ..Job::new(&line) });
}

#[test]
fn redis_saves_in_a_fork() {
    needs!(ready(&["redis-server", "redis-cli", "redis-benchmark", "awk"]));
    let (script, keys) = (workload("redis.sh"), sized("30000", "200000"));
    check(|_| Job { needs_half: true, ..Job::new(&["sh", &script, keys]) });
}

#[test]
fn postgres_serves_pgbench() {
    let programs = ["postgres", "initdb", "psql", "pgbench"];
    needs!(ready(&programs));
    // PostgreSQL does not run as root.
    let root = rustix::process::geteuid().is_root();
    if root && !installed(&["setpriv", "id"]) {
        return;
    }
    let unprivileged = "setpriv --reuid=nobody --regid=nogroup --clear-groups --";
    let line: Vec<_> = if root { unprivileged.split(' ').collect() } else { Vec::new() };
    let scratch = tempfile::tempdir().expect("a directory");
    let (script, rows) = (workload("postgres.sh"), sized("40000", "600000"));
    let local = "postgres.sh";
    // Once: it is slow, and each has an identity of its own.
    if let Err(complaint) = make_cluster(scratch.path(), &script, root, &line) {
        return skip(&complaint);
    }
    check(|dir| {
        let copied =
            Command::new("cp").arg("-a").arg(scratch.path().join("data")).arg(dir).status();
        assert!(copied.is_ok_and(|status| status.success()), "the cluster is copied");
        give_away(dir, root);
        fs::copy(&script, dir.join(local)).expect("copied to where all may read it");
        fs::set_permissions(dir.join(local), fs::Permissions::from_mode(0o644)).expect("a file");
        let line = [line.as_slice(), &["sh", local, rows]].concat();
        // It sorts for some milliseconds: 7 to 13 MiB are seen of it alone. With 4 MiB, of which
        // more than half cannot leave, it only waits for pages.
        Job { needs_half: true, least: 6 << 20, ..Job::new(&line) }
    });
}

/// Makes an empty database cluster in `dir`.
fn make_cluster(dir: &Path, script: &str, root: bool, line: &[&str]) -> Result<(), String> {
    give_away(dir, root);
    let text = fs::read_to_string(script).expect("a script");
    let line = [line, &["sh", "-c", &text, "postgres.sh", "make"]].concat();
    let mut command = Command::new(line[0]);
    command.args(&line[1..]).current_dir(dir);
    command.env("PATH", std::env::join_paths(crate::needs::path()).expect("a path"));
    let output = command.output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("initdb: {}", said.trim())) }
}

/// Makes `dir` one that nobody, in this case a user, may write to.
fn give_away(dir: &Path, root: bool) {
    if !root {
        return;
    }
    let id = |flag| {
        let output = Command::new("id").args([flag, "nobody"]).output().expect("id runs");
        String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number")
    };
    chown(dir, Some(id("-u")), Some(id("-g"))).expect("root may");
    for dir in dir.ancestors().take_while(|dir| *dir != std::env::temp_dir()) {
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(dir, open).expect("a directory of ours");
    }
}
