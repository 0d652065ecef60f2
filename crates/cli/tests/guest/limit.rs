//! Guests out of which pages leave.

use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;
use zfold_testing::compiled::{Compiled, compile};
use zfold_testing::{skip, wait_for};

use crate::restored::Guest;
use crate::server::{Server, memory};
use crate::survival::kill;

const PAGES: u64 = 8192;
const LIMIT: u64 = 1024;

/// A server with a limit, and a guest that has written to all of its pages.
struct World {
    server: Server,
    guest: Guest,
    folder: TempDir,
    _compiled: Compiled,
}

impl World {
    fn new(test: &str, on_loss: &str) -> Option<Self> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guest/guest.c");
        let compiled = match compile(&source, &["-Wall", "-Wextra", "-Werror"]) {
            Ok(compiled) => compiled,
            Err(told) => {
                skip(test, told);
                return None;
            }
        };
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a.mem");
        memory(&file, PAGES, 1);
        let image = format!("web={}", file.display());
        let arguments = ["--resident-limit", "4MiB", "--on-loss", on_loss, "--image", &image];
        let server = Server::start(tempfile::tempdir().expect("a folder"), &arguments, 1);
        let mut guest = Guest::backed(&compiled.program, &server.told[0].1, &file);
        match guest.says().as_str() {
            "none" => {
                skip(test, "no userfaultfd");
                None
            }
            said => {
                assert_eq!(said, "right");
                Some(Self { server, guest, folder, _compiled: compiled })
            }
        }
    }

    /// Waits until the guest has no more pages in memory than the limit; returns what is said then.
    fn shrunk(&self) -> Value {
        wait_for(|| {
            let stat = self.server.stat();
            let resident = number(&stat, "resident_pages");
            (resident <= LIMIT).then(|| stat.clone()).ok_or(stat)
        })
    }
}

#[test]
fn pages_beyond_a_limit_leave_and_come_back() {
    let Some(World { server, mut guest, folder, _compiled }) =
        World::new("pages_beyond_a_limit_leave_and_come_back", "wait").inspect(|world| {
            let stat = world.shrunk();
            assert_eq!(stat["resident_limit_bytes"], LIMIT << 12);
            assert!(number(&stat, "out_pages") >= PAGES - LIMIT - 1, "{stat}");
            let held = number(&stat, "out_held_bytes");
            assert!(held > 0 && held < PAGES << 10);
        })
    else {
        return;
    };
    assert_eq!(guest.again(), "right");
    let text = server.done(&["guest", "stat"]);
    assert!(text.contains("resident limit"), "{text}");
    // A difference would lack what is out.
    let file = folder.path().join("a.mem");
    let file = file.to_str().expect("text");
    server.refused(&["guest", "hibernate", "1", "asleep", file], &["Full"]);
    server.end();
    assert_eq!(guest.again(), "right");
}

fn number(stat: &Value, name: &str) -> u64 {
    stat[name].as_u64().unwrap_or_else(|| panic!("{name}: {stat}"))
}

#[test]
fn a_limit_is_paused_changed_and_met_again() {
    let Some(mut world) = World::new("a_limit_is_paused_changed_and_met_again", "wait") else {
        return;
    };
    world.shrunk();
    world.server.done(&["guest", "pause"]);
    assert!(world.server.done(&["guest", "stat"]).contains("paused"));
    assert_eq!(world.guest.again(), "right");
    let before = world.server.stat();
    assert_eq!(world.guest.again(), "right");
    let after = world.server.stat();
    // What was asked for before is about to leave still.
    let left = number(&after, "left_pages_total") - number(&before, "left_pages_total");
    assert!(left <= 512 && number(&after, "resident_pages") > PAGES / 2, "{after}");
    world.server.done(&["guest", "resume"]);
    world.shrunk();
    world.server.done(&["guest", "set", "resident-limit=2MiB", "limit=64MiB"]);
    let stat = wait_for(|| {
        let stat = world.server.stat();
        if number(&stat, "resident_pages") <= LIMIT / 2 { Ok(stat) } else { Err(stat) }
    });
    assert_eq!((number(&stat, "resident_limit_bytes"), &stat["paused"]), (2 << 20, &false.into()));
    assert_eq!(world.guest.again(), "right");
    world.server.end();
}

#[test]
fn a_guest_that_does_nothing_has_no_page_after_a_page_out() {
    let test = "a_guest_that_does_nothing_has_no_page_after_a_page_out";
    let Some(World { server, mut guest, .. }) = World::new(test, "wait") else { return };
    server.done(&["guest", "set", "resident-limit=none"]);
    for whose in [&["1"][..], &["web"], &[]] {
        assert_eq!(guest.again(), "right");
        let said = server.done(&[&["guest", "page-out"], whose].concat());
        assert!(said.contains(" left, 0 ") && said.ends_with(" stay\n"), "{said}");
        let stat = server.stat();
        assert_eq!(number(&stat, "resident_pages"), 0, "{stat}");
    }
    assert_eq!(guest.again(), "right");
    server.refused(&["guest", "page-out", "2"], &["no guest", "'2'"]);
    server.end();
}

#[test]
fn what_cannot_be_set_changes_nothing() {
    let server = Server::start(tempfile::tempdir().expect("a folder"), &[], 0);
    let refused = |words: &[&str], parts: &[&str]| {
        server.refused(&[&["guest"], words].concat(), parts);
    };
    refused(&["set", "limit=64MiB", "resident-limit=4KiB"], &["1MiB or more"]);
    refused(&["set", "codec=lz4"], &["resident-limit=SIZE"]);
    refused(&["page-out", "web"], &["no guest", "'web'"]);
    assert_eq!(server.stat()["limit_bytes"], 0);
    server.end();
}

#[test]
fn who_takes_over_begins_with_what_was_set() {
    let server = Server::start(tempfile::tempdir().expect("a folder"), &[], 0);
    server.done(&["guest", "set", "limit=64MiB", "resident-limit=8MiB"]);
    server.done(&["guest", "pause"]);
    kill(&server.stat());
    let stat = wait_for(|| {
        let stat = server.stat();
        if stat["takeovers_total"] == 1 { Ok(stat) } else { Err(stat) }
    });
    let set = ["limit_bytes", "resident_limit_bytes"].map(|name| number(&stat, name));
    assert_eq!((set, &stat["paused"]), ([64 << 20, 8 << 20], &true.into()));
    server.end();
}

/// What is out was in the memory of the server that was killed.
#[test]
fn a_guest_of_which_pages_were_out_waits_for_ever_after_its_server() {
    let test = "a_guest_of_which_pages_were_out_waits_for_ever_after_its_server";
    let Some(mut world) = World::new(test, "wait") else { return };
    kill(&world.shrunk());
    let stat = wait_for(|| {
        let stat = world.server.stat();
        if stat["guests"][0]["state"] == "held" { Ok(stat) } else { Err(stat) }
    });
    assert_eq!((&stat["takeovers_total"], &stat["guests"][0]["number"]), (&1.into(), &1.into()));
    // It has read nothing wrong: it has no answer yet, and gets none.
    world.guest.ask();
    assert!(world.guest.is_alive());
    let said = world.guest.kill();
    assert_eq!(said, "", "before it was killed");
    world.server.end();
}

#[test]
fn a_guest_of_which_pages_were_out_is_killed_where_that_is_asked_for() {
    let test = "a_guest_of_which_pages_were_out_is_killed_where_that_is_asked_for";
    let Some(mut world) = World::new(test, "kill") else { return };
    kill(&world.shrunk());
    wait_for(|| if world.guest.is_alive() { Err("it lives") } else { Ok(()) });
    assert_eq!(world.guest.kill(), "");
    wait_for(|| {
        let stat = world.server.stat();
        if stat["guests"] == Value::Array(Vec::new()) { Ok(()) } else { Err(stat) }
    });
    world.server.end();
}
